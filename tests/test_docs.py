"""The pages: each link resolves, each page is linked, each command named exists; each has help and ``--json``."""

import functools
import pathlib
import re
from collections.abc import Iterator

import pytest
import typer
import typer.main

from cotenant.cli import app, catalogue

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
COMMANDS = {command.name for command in catalogue.COMMANDS}

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?:^|[`#$]|&& |\| )\s*cotenant ((?:[a-z][a-z-]*\b ?)+)", re.MULTILINE)


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield file and anchor of each relative link outside blocks of code."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def anchors(page: pathlib.Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@functools.cache
def click_command(name: str) -> object:
    root = typer.main.get_command(app.build([name]))
    return root.commands[name]  # type: ignore[attr-defined]


def leaves(command: object, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield each command that does something, with the words that call it."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:  # type: ignore[attr-defined]
        yield words, command
    for name, one in below.items():
        yield from leaves(one, (*words, name))


def test_the_chinese_readme_has_the_sections_commands_and_links_of_the_english_one() -> None:
    def skeleton(name: str) -> dict[str, list[str]]:
        text = (ROOT / name).read_text()
        prose = FENCE.sub("", text)
        return {
            "commands": [re.sub(r"\s*#.*", "", line) for block in FENCE.findall(text) for line in block.splitlines()],
            "headings": re.findall(r"^#+", prose, re.MULTILINE),
            "rows": re.findall(r"^\|", prose, re.MULTILINE),
            "code": sorted(re.findall(r"`([^`\n]+)`", prose)),
            "links": sorted(link for link in LINK.findall(prose) if not link.startswith("README")),
        }

    assert skeleton("README.zh-CN.md") == skeleton("README.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_resolves(page: pathlib.Path) -> None:
    broken = []
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(f"{file}#{anchor}" if anchor else file)
    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / file).resolve() for file, _ in links(page) if file]
    assert sorted(map(name_of, set(DOCS.rglob("*.md")) - reached)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_a_page_names_exists(page: pathlib.Path) -> None:
    named = {words.split()[0]: words.split() for words in NAMED.findall(page.read_text())}
    assert sorted(set(named) - COMMANDS) == []
    for words in NAMED.findall(page.read_text()):
        first, *rest = words.split()
        below = getattr(click_command(first), "commands", {})
        if below and rest and not click_command(first).invoke_without_command:  # type: ignore[attr-defined]
            assert rest[0] in below, f"{name_of(page)}: cotenant {words}"


def test_the_book_names_each_command_beside_its_page() -> None:
    named = {words.split()[0] for words in re.findall(r"`([a-z][a-z -]*)`", (DOCS / "README.md").read_text())}
    assert sorted(COMMANDS - named) == []


def test_the_pattern_finds_commands() -> None:
    text = (
        "`cotenant up`, then\n    cotenant verify smt\n# cotenant restore  # all\na cotenant is not one, cotenant says"
    )
    assert [words.split() for words in NAMED.findall(text)] == [["up"], ["verify", "smt"], ["restore"]]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_json_and_a_page(name: str) -> None:
    for words, command in leaves(click_command(name), (name,)):
        assert command.help, words  # type: ignore[attr-defined]
        options = {text for option in command.params for text in option.opts}  # type: ignore[attr-defined]
        assert "--json" in options, words
        for option in command.params:  # type: ignore[attr-defined]
            assert getattr(option, "help", None), (words, option.name)
    assert any(f"cotenant {name}" in page.read_text() for page in DOCS.glob("*.md"))
