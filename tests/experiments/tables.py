"""Small data files for runs of experiments."""

import pyarrow as pa
import pyarrow.parquet

from conftest import drawn_evaluations

MPNET, MINILM = "all_mpnet_base_v2", "all_minilm_l6_v2"


def write_table(path, stems=(MPNET, MINILM), cut=False, broken=False, queries=160, models=4):
    """A table in RouterBench's layout with an embedding column for each stem, all of them of the same queries.

    MiniLM, if it is ``cut``, does not tell some queries apart; if it is ``broken``, row 5 is too short.
    """
    evaluations = drawn_evaluations(queries, models, per_query=models)
    grid = evaluations.grid()
    columns = {
        "prompt": [f"query {place}" for place in range(queries)],
        "eval_name": [f"task-{place % 6}" for place in range(queries)],
    }
    for place, name in enumerate(grid.pool.names):
        columns |= {name: grid.accuracy[:, place], f"{name}|total_cost": grid.cost[:, place]}
    for number, stem in enumerate(stems):
        vectors = drawn_evaluations(queries, seed=number, dimension=8 + number).embeddings.tolist()
        if stem == MINILM and cut:
            vectors[-40:] = [vectors[0]] * 40
        if stem == MINILM and broken:
            vectors[4] = vectors[4][:3]
        columns[f"{stem}_embedding"] = vectors
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path
