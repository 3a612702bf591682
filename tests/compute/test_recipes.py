"""Recipes: what may stand in one, what is refused, and what becomes of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tasc_compute.contracts import EngineId, EngineRuntimeKind
from tasc_compute.errors import RecipeError
from tasc_compute.recipes import model_sha256, order_of, parse_recipe, read_recipe

GOOD = """
schema = "tasc-engine-recipe-v1"
name = "champion"
engine = "llamacpp"
model = "tiny.gguf"
served_model_name = "tiny"
"""
EXAMPLES = Path(__file__).parents[2] / "examples" / "live"


def parse(text: str, folder: Path = Path("/recipes")) -> object:
    return parse_recipe(text.encode(), "r.toml", folder)


def test_a_full_recipe_becomes_an_order(tmp_path, host):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    recipe = parse_recipe(
        (
            GOOD
            + """
port = 8101
device_count = 1
extra_args = ["--threads", "2"]
binary = "bin/llama-server"
ready_deadline_s = 60
allow_foreign_processes = ["Xorg"]
[knobs]
max_context_length = 4096
memory_fraction = 0.5
[env]
OMP_NUM_THREADS = "2"
"""
        ).encode(),
        "r.toml",
        tmp_path,
    )
    order = order_of(recipe, host, link_folder=tmp_path / "links", device_pool=("GPU-a", "GPU-b"))
    request = order.request
    assert (order.name, order.recipe_id, order.exact_port, order.ready_deadline_ms) == (
        "champion",
        "champion",
        True,
        60_000,
    )
    assert (order.device_count, order.device_pool, order.foreign_allowed) == (
        1,
        ("GPU-a", "GPU-b"),
        frozenset({"Xorg"}),
    )
    assert (request.engine, request.runtime, request.port) == (EngineId.LLAMACPP, EngineRuntimeKind.PROCESS, 8101)
    assert request.model_path == str(tmp_path / "tiny.gguf")
    assert request.binary == str(tmp_path / "bin/llama-server")
    assert (request.options.max_context_length, request.options.memory_fraction) == (4096, 0.5)
    assert request.env == {"OMP_NUM_THREADS": "2"}


def test_without_a_port_one_is_searched_from_the_engines_own_on(tmp_path, host):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    order = order_of(parse_recipe(GOOD.encode(), "r.toml", tmp_path), host, link_folder=tmp_path)
    assert (order.request.port, order.exact_port, order.request.binary) == (8081, False, "llama-server")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "r.toml: schema: is missing -> correct the recipe"),
        ("schema = 'x'", "r.toml: schema: must be tasc-engine-recipe-v1 -> correct the recipe"),
        ("a = [", "r.toml:1: is no TOML -> correct the line"),
        (GOOD.replace("champion", "Champion"), "r.toml: name: is no instance name: lower-case letters"),
        (GOOD.replace("champion", "../x"), "r.toml: name: is no instance name"),
        (GOOD.replace("llamacpp", "ollama"), "r.toml: engine: must be one of vllm, sglang, llamacpp, mlx, exllamav3"),
        (GOOD + "port = 0", "r.toml: port: must be between 1 and 65535"),
        (GOOD + "port = true", "r.toml: port: must be a whole number"),
        (GOOD + "port = '1'", "r.toml: port: must be a whole number"),
        (GOOD + "runtime = 'vm'", "r.toml: runtime: must be one of process, docker"),
        (GOOD + "extra_args = 'x'", "r.toml: extra_args: must be a list of texts"),
        (GOOD + "extra_args = [1]", "r.toml: extra_args: must be a list of texts"),
        (GOOD + "logs_content = 1", "r.toml: logs_content: must be true or false"),
        (GOOD + "model_sha256 = 'abc'", "r.toml: model_sha256: must be sha256: and 64 hexadecimal digits"),
        (GOOD + "devices = ['a']\ndevice_count = 1", "r.toml: device_count: stands beside devices"),
        (GOOD + "devices = ['a', 'a']", "r.toml: devices: names a device twice"),
        (GOOD + "[knobs]\nspeed = 1", "r.toml: knobs.speed: is no knob; there are tensor_parallel,"),
        (
            GOOD + "[knobs]\nmemory_fraction = 1.5",
            "r.toml: knobs.memory_fraction: has a value of another type or range",
        ),
        (GOOD + "[knobs]\ntensor_parallel = -1", "r.toml: knobs.tensor_parallel: has a value of another type or range"),
        (GOOD + "[knobs]\ntrust_remote_code = 1", "r.toml: knobs.trust_remote_code: has a value of another type"),
        (GOOD + "[env]\nA = 1", "r.toml: env.A: must be a variable's name with a text"),
        (GOOD + "[env]\n'a b' = 'x'", "r.toml: env.a b: must be a variable's name with a text"),
        (GOOD + "colour = 'red'", "r.toml: colour: is not a key of a recipe"),
    ],
)
def test_a_broken_rule_names_the_key_and_the_way_out(text, says):
    with pytest.raises(RecipeError) as caught:
        parse(text)
    assert str(caught.value).startswith(says)
    assert " -> " in str(caught.value)


def test_a_missing_model_or_package_is_refused(tmp_path, host):
    with pytest.raises(RecipeError, match="no such file or folder"):
        order_of(parse_recipe(GOOD.encode(), "r.toml", tmp_path), host, link_folder=tmp_path)
    packaged = GOOD.replace("tiny.gguf", "package:no_such_package_here/x.gguf")
    with pytest.raises(RecipeError, match="the package no_such_package_here is not installed"):
        order_of(parse_recipe(packaged.encode(), "r.toml", tmp_path), host, link_folder=tmp_path)
    outside = GOOD.replace("tiny.gguf", "package:tasc_compute/../pyproject.toml")
    with pytest.raises(RecipeError, match="has no file"):
        order_of(parse_recipe(outside.encode(), "r.toml", tmp_path), host, link_folder=tmp_path)


def test_a_package_file_is_found_without_importing(tmp_path, host):
    text = GOOD.replace("tiny.gguf", "package:tasc_compute/py.typed")
    order = order_of(parse_recipe(text.encode(), "r.toml", tmp_path), host, link_folder=tmp_path)
    assert order.request.model_path == str(Path(__file__).parents[2] / "tasc_compute" / "py.typed")


def test_the_model_digest_is_that_of_the_file_and_checked_against_the_pin(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    expected = "sha256:" + hashlib.sha256(b"GGUF").hexdigest()
    assert model_sha256(parse_recipe(GOOD.encode(), "r.toml", tmp_path)) == expected
    pinned = GOOD + f'model_sha256 = "sha256:{"0" * 64}"'
    with pytest.raises(RecipeError, match="is not the pinned model"):
        model_sha256(parse_recipe(pinned.encode(), "r.toml", tmp_path))


def test_the_digest_of_a_model_folder_depends_on_every_file(tmp_path):
    folder = tmp_path / "tiny.gguf"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    recipe = parse_recipe(GOOD.encode(), "r.toml", tmp_path)
    first = model_sha256(recipe)
    (folder / "b").write_bytes(b"2")
    second = model_sha256(recipe)
    (folder / "b").rename(folder / "c")
    assert len({first, second, model_sha256(recipe)}) == 3


def test_the_examples_are_recipes_on_fixed_ports():
    recipes = [read_recipe(path) for path in sorted(EXAMPLES.glob("*.toml"))]
    assert [(recipe.name, recipe.port) for recipe in recipes] == [
        ("demo-candidate", 18112),
        ("demo-champion", 18111),
        ("demo-chat-candidate", 18113),
    ]


def test_a_recipe_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('schema = "tasc-engine-recipe-v1"\nname = = secret\n', "r.toml:2"),
        ('name = "one"\nname = "secret"\n', "r.toml:2"),
        ('schema = "tasc-engine-recipe-v1"\nname = "secret', "r.toml:2"),
        ("devices = [\n", "r.toml:1"),
        ("[knobs]\n\n\nmax_context_length = secret\n", "r.toml:4"),
    ],
)
def test_a_file_that_is_no_toml_names_its_line_and_quotes_nothing_of_it(text: str, where: str) -> None:
    with pytest.raises(RecipeError) as refused:
        parse(text)
    assert refused.value.where == where and refused.value.what == "is no TOML"
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_utf8_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is no TOML"):
        parse_recipe(b'name = "\xff"\n', "r.toml", tmp_path)
