"""A small data file for runs of experiments."""

import pyarrow as pa
import pyarrow.parquet

from conftest import drawn_evaluations


def write_table(path, broken=False, queries=300):
    """Embeddings of two encoders; in a broken table row 5 of the second is too short."""
    evaluations = drawn_evaluations(queries, models=8, per_query=8)
    grid, vectors = evaluations.grid(), [vector.tolist() for vector in evaluations.embeddings]
    columns = {"prompt": [f"query {place}" for place in range(queries)], "eval_name": list(evaluations.task)}
    for place, name in enumerate(grid.pool.names):
        columns |= {name: grid.accuracy[:, place], f"{name}|total_cost": grid.cost[:, place]}
    columns["all_mpnet_base_v2_embedding"] = vectors
    columns["all_minilm_l6_v2_embedding"] = [*vectors[:4], vectors[4][:3], *vectors[5:]] if broken else vectors
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path
