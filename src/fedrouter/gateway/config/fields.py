"""Types of fields, and the base class of sections, of the gateway's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

MEGABYTE = 1 << 20


def problem(message: str) -> PydanticCustomError:
    """A validation error with a message for the person who wrote the config."""
    return PydanticCustomError("problem", "{message}", {"message": message})


def not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "not a number")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "blank text")
    return value


Positive = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(not_bool)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(not_bool)]
Count = Annotated[StrictInt, Field(ge=0)]
Text = Annotated[StrictStr, AfterValidator(_not_blank)]


class Section(BaseModel):
    """A group of fields; an unknown field is an error, and a field with the value null has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the new values are not validated."""
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no fields {sorted(unknown)}")
        return self.model_copy(update=changes)


def flat_mapping(value: Any) -> Any:
    """Names with scalar values, as text: YAML reads some of them as numbers or dates."""
    if not isinstance(value, Mapping) or any(isinstance(entry, dict | list) for entry in value.values()):
        raise problem("expected names with one value each")
    return {str(name): str(entry) for name, entry in value.items()}
