"""The history of quality: one measurement an hour, the latest."""

from fedrouter.store.page.quality import HOUR, Point, note, since


def test_an_hour_has_its_latest_measurement_and_earlier_hours_stay(store):
    def point(hour: int, minute: int, kept: float) -> Point:
        return Point(hour, float(hour * HOUR + 60 * minute), kept, kept - 0.1, kept + 0.1, 0.3, 0.0)

    for each in (point(1, 5, 0.9), point(1, 55, 0.8), point(2, 1, 0.95)):
        with store.writing() as connection:
            note(connection, each)
    with store.reading() as connection:
        assert since(connection, 0.0) == [point(1, 55, 0.8), point(2, 1, 0.95)]
        assert since(connection, 2.0 * HOUR) == [point(2, 1, 0.95)]
