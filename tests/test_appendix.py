"""The appendix keeps up with the course: every term has its code, every paper that a chapter cites is in the sources.

What is there when the tests run is what is read: a chapter that is being written counts with the links it has so far.
"""

import dataclasses
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from grpo_lab.engine.metrics import GLOSSARY
from grpo_lab.teach import terms
from tools.rules import Html

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "chapters" / "src"
NUMBERS = "00 01 02 03 04 05 06 07 08 09 10 10b 11 12 13 14 15".split()
MAIN = """
action advantage asynchronous baseline batch bias clip-fraction clip-higher clipping confidence-interval critic dis
dr-grpo end-token entropy episode ess explained-variance gae gamma gradient group group-size grpo held-out
importance-ratio importance-sampling kl-divergence leave-one-out log-probability loss majority-vote mask off-policy
on-policy pass-k policy policy-gradient ppo prompt reference-policy rejection-sampling return reward reward-model
reward-to-go rollout seed staleness state surrogate-objective td-error temperature token trajectory trust-region value
variance verifiable-reward warm-start whitening zero-variance-group
""".split()
CJK = re.compile(r"[\u4e00-\u9fff]")
ARXIV = re.compile(r"arxiv\.org/(?:abs|pdf|html)/(\d{4}\.\d{4,5})")
# Characters that the two scripts write differently, Traditional first: each column keeps to its own.
PAIRS = """
動动 優优 勢势 數数 無无 強强 學学 習习 獎奖 勵励 價价 報报 軌轨 圖图 說说 態态 狀状 損损 組组 據据 訓训 練练
參参 標标 準准 變变 異异 隨随 機机 種种 對对 導导 論论 與与 長长 選选 應应 時时 間间 斷断 環环 過过 個个 樣样
權权 詞词 彙汇 幾几 線线 貪贪 區区 賴赖 評评 廣广 義义 復复 溫温 觀观 測测 監监 駭骇 佇伫 隊队 啟启 熱热 離离
續续 決决 釋释 證证 積积 絕绝 類类 單单 雙双 們们
""".split()
TRADITIONAL = {a for a, _ in PAIRS}
SIMPLIFIED = {b for _, b in PAIRS}


def resolve(code):
    """What a term's code means; raises where there is no such thing. A field gives its own name."""
    if "/" in code:
        return GLOSSARY[code]
    path, _, parameter = code.removesuffix(")").partition("(")
    parts = ["grpo_lab", *path.split(".")]
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        break
    for name in parts[cut:]:
        fields = getattr(found, "__annotations__", {}) if inspect.isclass(found) else {}
        found = name if name in fields else getattr(found, name)
    if parameter and parameter not in inspect.signature(found).parameters:
        raise AttributeError(f"{path} has no parameter {parameter}")
    return found


def sources_text():
    return (SOURCES / "appendix_sources.py").read_text(encoding="utf-8")


# --- the glossary ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", terms.TERMS, ids=lambda term: term.anchor)
def test_the_code_that_a_term_names_exists(term):
    if term.code:
        assert resolve(term.code) is not None


@pytest.mark.parametrize(
    "code",
    [
        "concepts.gae.gaes",
        "concepts.nothing.gae",
        "concepts.gae.gae(lambda)",
        "engine.batch.Batch.tokens",
        "policy/essence",
    ],
)
def test_a_name_that_does_not_exist_is_noticed(code):
    with pytest.raises((AttributeError, KeyError)):
        resolve(code)


def test_most_terms_have_a_name_in_the_code():
    without = [term.term for term in terms.TERMS if not term.code]
    assert len(without) <= 8, without


def test_terms_are_sorted_and_their_anchors_unique():
    anchors = [term.anchor for term in terms.TERMS]
    assert anchors == sorted(anchors)
    assert len(set(anchors)) == len(anchors)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", anchor) for anchor in anchors)


def test_chapters_are_the_known_ones():
    assert list(terms.CHAPTERS) == NUMBERS
    assert {term.chapter for term in terms.TERMS} <= set(NUMBERS)


def test_a_chapter_on_disk_has_a_number_that_the_glossary_knows():
    files = [path.stem for path in SOURCES.glob("*.py") if not path.stem.startswith("appendix_")]
    assert {name.split("_")[0] for name in files} <= set(NUMBERS), files


@pytest.mark.parametrize("term", terms.TERMS, ids=lambda term: term.anchor)
def test_a_term_is_said_in_one_or_two_plain_sentences(term):
    assert term.says.endswith(".")
    assert term.says[0].isupper() or term.says.startswith(("u - 1", "logp"))
    assert 3 <= len(term.says.split()) <= 45
    assert term.says.count(". ") <= 2
    assert not CJK.search(term.says)
    assert all(value == value.strip() for value in dataclasses.astuple(term))


def test_the_main_terms_have_both_chinese_columns():
    known = {term.anchor: term for term in terms.TERMS}
    assert [name for name in MAIN if name not in known] == []
    empty = [
        name
        for name in MAIN
        if not (CJK.search(known[name].traditional) and CJK.search(known[name].simplified))
    ]
    assert empty == []


def test_chinese_stands_in_both_columns_or_in_neither():
    assert [term.term for term in terms.TERMS if bool(term.traditional) != bool(term.simplified)] == []


def test_each_column_keeps_its_script():
    for term in terms.TERMS:
        assert not set(term.traditional) & SIMPLIFIED, term
        assert not set(term.simplified) & TRADITIONAL, term


def test_the_table_shows_every_term_with_its_anchor_and_as_text():
    bundle = terms.table()._repr_mimebundle_()
    page, text = bundle["text/html"], bundle["text/plain"]
    for term in terms.TERMS:
        # Both: JupyterLab looks for data-jupyter-id, a page of the site for id.
        assert page.count(f'<a id="{term.anchor}" data-jupyter-id="{term.anchor}"></a>') == 1
        assert term.says in text
        assert " ".join(term.says.split()) in Html(page).text
    assert len(text.splitlines()) == len(terms.TERMS) == len(terms.table())
    assert len(page) + len(text) < 150_000


def test_find_searches_all_columns():
    assert {term.term for term in terms.find("RATIO").terms} >= {"importance ratio", "clipping"}
    assert [term.term for term in terms.find("留一法").terms] == ["leave-one-out (RLOO)"]
    assert "GAE" in repr(terms.find("concepts.gae"))
    assert repr(terms.find("no such word")) == "no such term"


def test_links_of_chapters_into_the_glossary_meet_an_anchor():
    anchors = {term.anchor for term in terms.TERMS}
    for path in sorted(SOURCES.glob("*.py")):
        links = re.findall(r"\(appendix_glossary\.ipynb#([^)\s]*)\)", path.read_text(encoding="utf-8"))
        assert set(links) <= anchors, f"{path.name}: {sorted(set(links) - anchors)}"


# --- the sources -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["chapters/src", "grpo_lab"])
def test_every_arxiv_paper_that_is_cited_is_in_the_sources(folder):
    known = set(ARXIV.findall(sources_text()))
    missing = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for paper in set(ARXIV.findall(path.read_text(encoding="utf-8"))) - known:
            missing.setdefault(paper, []).append(path.relative_to(ROOT).as_posix())
    assert missing == {}, (
        "add a row to chapters/src/appendix_sources.py, then: make chapters ARGS=appendix_sources"
    )


def items():
    """The list items of the sources, each as one line."""
    found = []
    for line in sources_text().splitlines():
        if line.startswith("# - "):
            found.append(line.removeprefix("# - "))
        elif line.startswith("#   ") and found:
            found[-1] += " " + line.removeprefix("#").strip()
    return [item for item in found if "http" in item]


def test_no_source_is_listed_twice_and_each_says_what_rests_on_it_and_what_was_read():
    links = [re.search(r"https?://[^\s,;]+", item)[0].rstrip(".") for item in items()]
    assert len(links) > 45
    assert sorted(link for link in set(links) if links.count(link) > 1) == []
    for item in items():
        said = re.fullmatch(r".*https?://\S+\. \*Here:\* (.+) \*Read:\* (.+)", item)
        assert said, item
        assert re.search(r"\(\d\db?(, \d\db?)*\)|every chapter", said[1]), f"no chapter in: {item}"
        assert set(re.findall(r"\b\d\db?(?=[,)])", said[1])) <= set(NUMBERS), item
        assert re.match(r"(text|abstract|second hand|source code|not re-read)\b", said[2]), item


def test_the_versions_of_the_libraries_are_those_that_are_pinned():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    text = sources_text()
    for name, shown in (("trl", "TRL"), ("torchrl", "TorchRL"), ("transformers", "transformers")):
        version = re.search(rf"^{name}==(\S+)", pins, re.MULTILINE)[1]
        assert f"{shown} {version}" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(line.startswith("trl==") for line in project["optional-dependencies"]["test"])


@pytest.mark.parametrize("name", ["appendix_glossary", "appendix_sources"])
def test_the_built_appendix_is_small_and_holds_what_the_source_says(name):
    path = ROOT / "chapters" / f"{name}.ipynb"
    if not path.exists():
        pytest.skip("not built yet: make chapters")
    assert path.stat().st_size < 500_000
    nb = nbformat.read(path, as_version=4)
    if name == "appendix_glossary":
        pages = [
            output.data["text/html"]
            for cell in nb.cells
            for output in cell.get("outputs", [])
            if "text/html" in output.get("data", {})
        ]
        stored = [page for page in pages if 'data-jupyter-id="advantage"' in page]
        assert stored == [terms.table()._repr_mimebundle_()["text/html"]], "run: make chapters"
