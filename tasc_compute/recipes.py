"""Engine recipes: TOML files (``tasc-engine-recipe-v1``) that a person writes and keeps in git.

::

    schema = "tasc-engine-recipe-v1"
    name = "champion"                 # also the instance's name
    engine = "llamacpp"               # vllm, sglang, llamacpp, mlx, exllamav3
    runtime = "process"               # or "docker"; default process
    model = "models/tiny.gguf"        # relative to this file, absolute, or package:<import name>/<path>
    model_sha256 = "sha256:..."       # optional pin
    served_model_name = "tiny"
    binary = "llama-server"           # optional; a name on PATH, a path, or package:<import name>/<path>
    port = 8101                       # fixed: busy means refuse. Without it a port is searched from the engine's own on
    devices = ["GPU-..."]             # exactly these, or
    device_count = 1                  # so many of the host's
    extra_args = ["--kv-unified"]     # verbatim and last
    docker_image = "..."              # optional
    logs_content = false              # true allows flags with which the engine writes prompts or answers to disk
    ready_deadline_s = 120            # optional
    allow_foreign_processes = []      # names of processes that may use the devices beside the engine

    [knobs]                           # the fields of ServingOptions, in snake_case
    max_context_length = 4096

    [env]
    NAME = "value"

Strict: an unknown key is an error. A recipe holds no secret; what the engine needs of that kind lies in files it reads
    itself.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_compute.binaries import PREFIX, located_binary, package_file
from tasc_compute.canonical import digest, file_sha256
from tasc_compute.contracts import (
    DeviceId,
    EngineId,
    EngineRuntimeKind,
    HostProfile,
    LaunchRequest,
    ServingOptions,
)
from tasc_compute.engines import engine
from tasc_compute.errors import ContractError, RecipeError, StoreError
from tasc_compute.instances import check_name
from tasc_compute.limits import MAX_PORT, MAX_RECIPE_BYTES
from tasc_compute.reservations import LaunchOrder
from tasc_compute.visibility import DevicePlace

SCHEMA: Final = "tasc-engine-recipe-v1"
MODEL_FOLDER_DOMAIN: Final = "tasc/model-folder/v1"
_SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")
"""How ``tomllib`` says where."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as read; see the module for its keys."""

    name: str
    engine: EngineId
    runtime: EngineRuntimeKind
    model: str
    model_sha256: str | None
    served_model_name: str
    binary: str | None
    port: int | None
    devices: tuple[DeviceId, ...]
    device_count: int
    extra_args: tuple[str, ...]
    docker_image: str | None
    logs_content: bool
    ready_deadline_s: int | None
    allow_foreign_processes: tuple[str, ...]
    knobs: ServingOptions
    env: Mapping[str, str]
    folder: Path


class _Table:
    """One TOML table, read key by key; what is left over is an error."""

    def __init__(self, content: dict[str, object], where: str, prefix: str = "") -> None:
        self._content, self._where, self._prefix = dict(content), where, prefix

    def fail(self, key: str, what: str) -> RecipeError:
        return RecipeError(what, where=self._where, field=f"{self._prefix}{key}", way_out="correct the recipe")

    def take(self, key: str, kind: type, what: str) -> object | None:
        value = self._content.pop(key, None)
        if value is not None and type(value) is not kind:
            raise self.fail(key, f"must be {what}")
        return value

    def text(self, key: str) -> str | None:
        value = self.take(key, str, "a text")
        if value == "":
            raise self.fail(key, "must not be empty")
        return value if isinstance(value, str) else None

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise self.fail(key, "is missing")
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self.take(key, int, "a whole number")
        if value is None or not isinstance(value, int):
            return None
        if not low <= value <= high:
            raise self.fail(key, f"must be between {low} and {high}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key, list, "a list of texts")
        items = value if isinstance(value, list) else []
        if not all(isinstance(item, str) and item for item in items):
            raise self.fail(key, "must be a list of texts")
        return tuple(items)

    def table(self, key: str) -> _Table:
        value = self.take(key, dict, "a table")
        return _Table(value if isinstance(value, dict) else {}, self._where, f"{key}.")

    def rest(self) -> dict[str, object]:
        taken, self._content = self._content, {}
        return taken

    def end(self) -> None:
        for key in sorted(self._content):
            raise self.fail(key, "is not a key of a recipe")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file.

    Raises:
        RecipeError: it cannot be read or breaks a rule; the message names the key.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_RECIPE_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read ({error.strerror})", where=path.name, way_out="check the path") from None
    if len(data) > MAX_RECIPE_BYTES:
        raise RecipeError(f"is larger than {MAX_RECIPE_BYTES} bytes", where=path.name, way_out="name a recipe file")
    return parse_recipe(data, path.name, path.parent.absolute())


def parse_recipe(data: bytes, where: str, folder: Path) -> Recipe:
    """Read a recipe's text.

    Args:
        data: UTF-8 TOML.
        where: its file name, for messages.
        folder: what relative paths are relative to.

    Raises:
        RecipeError: it breaks a rule; the message names the key.
    """
    try:
        table = _Table(tomllib.loads(data.decode()), where)
    except (ValueError, RecursionError) as error:
        line = _line_of(error, data)
        raise RecipeError(
            "is no TOML",
            where=where if line is None else f"{where}:{line}",
            way_out="write it in UTF-8, without deep nesting" if line is None else "correct the line",
        ) from None
    if table.required("schema") != SCHEMA:
        raise table.fail("schema", f"must be {SCHEMA}")
    recipe = Recipe(
        name=_name(table),
        engine=EngineId(_one_of(table, "engine", EngineId, None)),
        runtime=EngineRuntimeKind(_one_of(table, "runtime", EngineRuntimeKind, "process")),
        model=table.required("model"),
        model_sha256=_digest(table),
        served_model_name=table.required("served_model_name"),
        binary=table.text("binary"),
        port=table.whole("port", 1, MAX_PORT),
        devices=table.texts("devices"),
        device_count=table.whole("device_count", 0, 1024) or 0,
        extra_args=table.texts("extra_args"),
        docker_image=table.text("docker_image"),
        logs_content=table.take("logs_content", bool, "true or false") is True,
        ready_deadline_s=table.whole("ready_deadline_s", 1, 86_400),
        allow_foreign_processes=table.texts("allow_foreign_processes"),
        knobs=_knobs(table.table("knobs")),
        env=_env(table.table("env")),
        folder=folder,
    )
    table.end()
    if recipe.devices and recipe.device_count:
        raise table.fail("device_count", "stands beside devices; keep one of them")
    if len(set(recipe.devices)) != len(recipe.devices):
        raise table.fail("devices", "names a device twice")
    return recipe


def _line_of(error: Exception, data: bytes) -> int | None:
    """The line of a syntax error; only its number is taken, because the rest of the message may quote the file."""
    if not isinstance(error, tomllib.TOMLDecodeError):
        return None
    found = _AT_LINE.search(str(error))
    return int(found[1]) if found else data.count(b"\n") + (not data.endswith(b"\n"))  # "at end of document"


def _name(table: _Table) -> str:
    try:
        return check_name(table.required("name"))
    except StoreError as error:
        raise table.fail("name", f"{error.what}: {error.rule}") from None


def _one_of(table: _Table, key: str, kind: type[EngineId | EngineRuntimeKind], default: str | None) -> str:
    value = table.text(key) or default
    if value is None:
        raise table.fail(key, "is missing")
    if value not in set(kind):
        raise table.fail(key, f"must be one of {', '.join(kind)}")
    return value


def _digest(table: _Table) -> str | None:
    value = table.text("model_sha256")
    if value is not None and not _SHA256.fullmatch(value):
        raise table.fail("model_sha256", "must be sha256: and 64 hexadecimal digits")
    return value


def _knobs(table: _Table) -> ServingOptions:
    options: dict[str, int | float | str | bool] = {}
    defaults = ServingOptions()
    known = {item.name: getattr(defaults, item.name) for item in dataclasses.fields(ServingOptions)}
    for key, value in table.rest().items():
        if key not in known:
            raise table.fail(key, f"is no knob; there are {', '.join(known)}")
        if isinstance(known[key], bool):
            good = type(value) is bool
        elif isinstance(known[key], int):
            good = type(value) is int and value >= 0
        elif isinstance(known[key], float):
            good = type(value) in (int, float) and isinstance(value, int | float) and 0 <= value <= 1
        else:
            good = type(value) is str
        if not good or not isinstance(value, int | float | str):
            raise table.fail(key, "has a value of another type or range")
        options[key] = value
    return dataclasses.replace(defaults, **options)  # type: ignore[arg-type]  # each value was checked against its field


def _env(table: _Table) -> dict[str, str]:
    env: dict[str, str] = {}
    for key, value in table.rest().items():
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise table.fail(key, "must be a variable's name with a text")
        env[key] = value
    return env


# --- from a recipe to an order ----------------------------------------------------------------------------------------


def model_path(recipe: Recipe) -> Path:
    """The absolute path of a recipe's model.

    Raises:
        RecipeError: there is no such file or folder.
    """
    if recipe.model.startswith(PREFIX):
        return package_file(recipe.model)
    path = (recipe.folder / Path(recipe.model).expanduser()).absolute()
    if not path.exists():
        raise RecipeError(
            "no such file or folder", where=recipe.name, field="model", way_out="correct the recipe's model"
        )
    return path


def model_sha256(recipe: Recipe) -> str:
    """SHA-256 of the model file, or the digest of a folder's files; checked against the recipe's pin.

    Raises:
        RecipeError: it cannot be read, or is not the pinned model.
    """
    path = model_path(recipe)
    try:
        if path.is_dir():
            files = sorted(item for item in path.rglob("*") if item.is_file())
            listed = [{"path": str(item.relative_to(path)), "sha256": file_sha256(item)} for item in files]
            found = digest(MODEL_FOLDER_DOMAIN, [dict(item) for item in listed])
        else:
            found = file_sha256(path)
    except ContractError as error:
        raise RecipeError(error.what, where=recipe.name, field="model", way_out="check the model's files") from None
    if recipe.model_sha256 not in (None, found):
        raise RecipeError(
            "is not the pinned model", where=recipe.name, field="model_sha256", way_out="get the pinned model"
        )
    return found


def order_of(
    recipe: Recipe,
    host: HostProfile,
    *,
    link_folder: Path,
    device_pool: Sequence[DeviceId] = (),
    places: Mapping[DeviceId, DevicePlace] | None = None,
) -> LaunchOrder:
    """The launch order of a recipe on a host.

    Args:
        recipe: the recipe.
        host: this host.
        link_folder: where links to a packaged engine's libraries are made.
        device_pool: the host's devices, in order of preference.
        places: ordinal and device files of each device during this boot.

    Raises:
        RecipeError: the model or a packaged binary is not there.
    """
    spec = engine(recipe.engine)
    binary = recipe.binary or spec.default_binary
    located_env: dict[str, str] = {}
    if binary.startswith(PREFIX):
        located = located_binary(binary, link_folder)
        binary, located_env = str(located.path), located.env
    elif "/" in binary:
        binary = str((recipe.folder / Path(binary).expanduser()).absolute())
    request = LaunchRequest(
        engine=recipe.engine,
        host=host,
        runtime=recipe.runtime,
        devices=recipe.devices,
        port=recipe.port or spec.default_port,
        model_path=str(model_path(recipe)),
        served_model_name=recipe.served_model_name,
        options=recipe.knobs,
        extra_args=recipe.extra_args,
        env={**located_env, **recipe.env},
        docker_image=recipe.docker_image,
        binary=binary,
    )
    return LaunchOrder(
        name=recipe.name,
        recipe_id=recipe.name,
        request=request,
        device_count=recipe.device_count,
        device_pool=tuple(device_pool),
        exact_port=recipe.port is not None,
        logs_content=recipe.logs_content,
        foreign_allowed=frozenset(recipe.allow_foreign_processes),
        places=dict(places or {}),
        ready_deadline_ms=recipe.ready_deadline_s * 1000 if recipe.ready_deadline_s else None,
    )
