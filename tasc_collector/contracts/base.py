"""The base of every record: strict, frozen, camelCase on disk, canonical bytes, digests, errors that name the field.

Rules:

1. A record is read from bytes by ``wire.records.read_record``: bounded parser first (no duplicate key, no NaN), then
   the schema through ``Record.from_value``.
2. An unknown or missing field is an error, also where Python has a default for it; nothing is coerced. Only the fields
   that a class names in ``omitted`` may be absent.
3. What is signed or digested is the *JSON value that was read*, kept in ``Parsed.value``, never a re-serialisation of
   the model. For a record that we make ourselves the two are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer
from pydantic.alias_generators import to_camel
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from tasc_collector.canonical import JsonValue, canonical_bytes, digest
from tasc_collector.errors import DigestMismatch, InputError


class Model(BaseModel):
    """A strict, frozen object inside a record. JSON names are camelCase, Python names snake_case."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,  # by name for our own constructors; ``from_value`` forbids it
        hide_input_in_errors=True,
        revalidate_instances="never",
        defer_build=True,  # a class costs its schema at its first use: most commands use a few of them
    )

    omitted: ClassVar[frozenset[str]] = frozenset()
    """JSON names of the fields that a file may leave out."""

    def to_json(self) -> dict[str, Any]:  # Any: a JSON object
        """The JSON value, with every field present and tuples as lists."""
        return self.model_dump(mode="json", by_alias=True)


def build_schemas(*modules: ModuleType) -> None:
    """Build the schemas of these modules' classes now.

    A schema is built at its first use, which takes milliseconds. Where calls are being timed, nothing may stand still for so
    long: whoever is about to make them calls this first.
    """
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, Model) and found.__module__ == module.__name__:
                found.model_rebuild()


class SparseModel(Model):
    """An object some of whose fields may be left out: ``None`` in Python, *absent* in JSON, never null.

    Declare it as ``rules.Omittable[T] = None`` and name it in ``omitted``.
    """

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:  # Any: a JSON object
        return without_omitted(handler(self), self.omitted)


def without_omitted(value: dict[str, Any], omitted: frozenset[str]) -> dict[str, Any]:  # Any: JSON objects
    """``value`` without the members that are ``None`` and named in ``omitted``."""
    return {name: item for name, item in value.items() if item is not None or name not in omitted}


R = TypeVar("R", bound="Record")


@dataclass(frozen=True, slots=True)
class Parsed(Generic[R]):
    """A record together with the exact JSON value that was read; signatures are checked over ``value``."""

    record: R
    value: dict[str, Any]  # Any: a JSON object as it was read


class Record(Model):
    """A record that leaves the process. Subclasses set ``domain`` and, where there is one, ``self_digest_field``."""

    domain: ClassVar[str]
    """Digest domain, ``tasc/...``."""
    self_digest_field: ClassVar[str | None] = None
    """Python name of the field that holds the record's own digest, excluded from what is digested."""

    @classmethod
    def from_value(cls, value: dict[str, Any], *, where: str | None = None) -> Parsed[Self]:  # Any: a JSON object
        """Check a JSON value that our own bounded parser made.

        Raises:
            InputError: a field is unknown, missing or breaks its rule; names the first such field.
            DigestMismatch: the record's own digest is not that of its content.
        """
        try:
            record = cls.model_validate_json(canonical_bytes(value), by_alias=True, by_name=False)
        except ValidationError as error:
            raise input_error(error, where=where or cls.__name__, value=value) from None
        absent = _absent_field(record)
        if absent is not None:
            raise InputError(
                "required field is missing",
                where=where or cls.__name__,
                field=".".join(map(str, absent)),
                way_out="add it",
            )
        parsed = Parsed(record, value)
        if cls.self_digest_field is not None:
            claimed = getattr(record, cls.self_digest_field)
            if claimed != cls.digest_of(value):
                raise DigestMismatch(
                    "the record's own digest is not that of its content",
                    where=where or cls.__name__,
                    field=to_camel(cls.self_digest_field),
                    way_out="restore the file as it was issued, or issue it again",
                )
        return parsed

    @classmethod
    def read_own(cls, data: bytes, *, where: str) -> Self:
        """Hold bytes to the schema that this process has made, or has read strictly before: they have every field.

        Raises:
            InputError: a field breaks its rule; names the first such field.
        """
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            raise input_error(error, where=where) from None

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Domain-separated digest of a JSON value of this record, without its own digest field."""
        if cls.self_digest_field is not None:
            name = to_camel(cls.self_digest_field)
            value = {key: item for key, item in value.items() if key != name}
        return digest(cls.domain, value)

    @property
    def digest(self) -> str:
        """Digest of this record's content."""
        return self.digest_of(self.to_json())

    def canonical(self) -> bytes:
        """RFC 8785 bytes, as they are stored and signed."""
        return canonical_bytes(self.to_json())

    @classmethod
    def issue(cls, **fields: Any) -> Self:  # Any: validated below
        """Build a record and fill its own digest where it has one."""
        if cls.self_digest_field is None:
            return cls(**fields)
        draft = cls(**fields, **{cls.self_digest_field: "sha256:" + "0" * 64})
        return cls(**fields, **{cls.self_digest_field: cls.digest_of(draft.to_json())})


class SparseRecord(Record):
    """A record some of whose fields may be left out, as in ``SparseModel``."""

    @model_serializer(mode="wrap")
    def _leave_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:  # Any: a JSON object
        return without_omitted(handler(self), self.omitted)


class OptionalDigestRecord(Record):
    """A record whose file may leave its own digest out; it is then computed, and checked where it is given."""

    @classmethod
    def from_value(cls, value: dict[str, Any], *, where: str | None = None) -> Parsed[Self]:  # Any: a JSON object
        """As of ``Record``; an absent digest is filled first."""
        name = to_camel(cls.self_digest_field or "")
        if name not in value:
            value = {**value, name: cls.digest_of(value)}
        return super().from_value(value, where=where)


def input_error(error: ValidationError, *, where: str, value: JsonValue = None) -> InputError:
    """One of our errors for the first problem of a schema error: the field's JSON path and the rule, never the value.

    Args:
        error: what the schema found.
        where: the file or record it is about.
        value: the JSON value that was read; with it the path has no name of a union's branch.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    kind, path = first["type"], [*first["loc"]]
    if value is not None:
        path = _json_path(value, path)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        path.append(str(first["ctx"]["discriminator"]).strip("'"))
    rule = {
        "extra_forbidden": "unknown field",
        "missing": "required field is missing",
        "union_tag_not_found": "required field is missing",
        "union_tag_invalid": "not one of the kinds that it can be",
    }.get(kind, first["msg"].removeprefix("Value error, "))
    way_out = {
        "extra_forbidden": "remove it or correct its spelling",
        "missing": "add it",
        "union_tag_not_found": "add it",
    }.get(kind, "correct the value")
    return InputError(rule, where=where, field=".".join(map(str, path)) or None, way_out=way_out)


@cache
def _with_default(cls: type[Model]) -> tuple[tuple[str, str], ...]:
    """Python and JSON names of the fields that have a default and may still not be absent in a file."""
    names = ((name, to_camel(name)) for name, field in cls.model_fields.items() if not field.is_required())
    return tuple((name, alias) for name, alias in names if alias not in cls.omitted)


def _absent_field(model: Model) -> list[int | str] | None:
    """JSON path of the first field that a default stands in for, or None."""
    for name, alias in _with_default(type(model)):
        if name not in model.model_fields_set:
            return [alias]
    for name, item in model.__dict__.items():
        members = enumerate(item) if isinstance(item, tuple) else ((None, item),)
        for index, member in members:
            path = _absent_field(member) if isinstance(member, Model) else None
            if path is not None:
                return [to_camel(name), *([] if index is None else [index]), *path]
    return None


def _json_path(value: JsonValue, location: list[int | str]) -> list[int | str]:
    """``location`` without the parts that are no member of ``value`` (branches of unions); a last one is kept."""
    path: list[int | str] = []
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(value, dict) and part in value and (last or isinstance(value[str(part)], (dict, list))):
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif not (last and isinstance(value, dict)):
            continue
        path.append(part)
    return path


def json_object(value: JsonValue, *, where: str) -> dict[str, Any]:  # Any: a JSON object
    """``value`` as an object, or an ``InputError``."""
    if not isinstance(value, dict):
        raise InputError("expected a JSON object", where=where)
    return value
