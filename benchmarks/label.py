"""What `lht label` must show: keystrokes to a class, time of an answer, kills at random moments, the loop of labelling.

    python benchmarks/label.py search                     # needs node
    python benchmarks/label.py speed
    python benchmarks/label.py kills --kills 200
    python benchmarks/label.py loop cub_lite0.npz --figure docs/label-loop.png

Each prints a part of benchmarks/label.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from torchlht.hierarchy.tree import Hierarchy

SEARCH = Path(__file__).parents[1] / "src/torchlht/serve/label/page/search.js"
TREES = Path(__file__).parents[1] / "src/torchlht/trees"
BEGINNINGS = """
acantho aego aero agri alauda alti ambly amphi anas andro anthra anti apo aqui arach archi argo arto atheno atti aulo bary
batho brady brachy bubo bucco caco calli campto cara carpo cata celeo cephalo cerato chae chalco charadri chiro chloro chryso
cinclo cirro cisti clado cocco colo conuro copro cory crypto crax crini cyano cygno cypri dacny dasy delicho dendro diglo dino
dipho drome dryo elae embe emble enico ephthia ere ery eudro eulo euphon eury falco flori forpu fregat frin fuli galli garru
gero geo glauci glyco gymno haema halcy hapalo heli hemi hetero hiero hirun holo hydro hylo hypo icter ixo jaca junco kento
lago lampro lani lepto leuco limno lipa lophi loxo luscini machae macro malaco malu mega melano melo micro mimo mono morph
musci myio myrme nect neo nycti oceano odonto oeno ortho oxy pachy paradi passer pelec penelo perdi petro phaeo phala philo
phoeni phyllo pica pipra platy plego ploce podi poly pomato prio procel psaro ptero ptilo puffi pycno pyro rallo ramph regu
rhino rhodo ripa rhyncho saxi schisto scoto seri sitta spheno spizo stelgi stercor strix stur sylvi syma tachy tangar tauro
tetra thalas thamno thraup thryo ticho toxo trago tricho trogo turdo tyran upu uro vani vidu vireo xantho xeno xipho zono
zostero zootho
""".split()  # noqa: SIM905
ENDS = """
ptera ptila cephalus rhynchus cercus gaster notus pus dactylus phanes phila lestes manes ornis aetus charis cichla cola corax
crex dytes gallus glaux gnathus lanius laima medusa mimus myza nax nectes nis oenas otis pelia phaps phasia philus phoneus
pitta podius prion psar psitta pyga rallus sittace soma spiza stoma strepera terpe thera thraupis tilus triccus trogon turdus
tyrannus urus venator xena zoster oides ella ina ula aria astur
""".split()  # noqa: SIM905
EPITHETS = """
abyssinica acuta adamsi aedon aethiopica affinis africana alba albicans albicilla albicollis albifrons albigula albilora
albinucha albiventris alpina altera amabilis amazonica ambigua americana amethystina andina angolensis antarctica apicalis
aquatica arabica arborea arctica arenaria argentata ariel armata arvensis asiatica assimilis aterrima atra atricapilla
atriceps atrogularis aurantia aurata aurea auricularis aurifrons australis axillaris azurea bahamensis baeri bairdi barbata
bengalensis bicolor bifasciata bimaculata boehmi bogotensis boliviana borealis boreonympha brachyura brasiliana brevipes
brevirostris brunnea brunneiceps buryi caerulea caesia caffra calandra californica calva cambodiana campestris canadensis cana
canescens cantans capensis capistrata carbo cardinalis caribaea carolinensis carpi castanea castaneiceps caudata cayana
cerulea ceylonensis chilensis chinensis chirurgus chloris chloroptera chlorolepidota chrysia chrysogaster chrysops cincta
cinerea cinnamomea citrina clamans clara coelestis collaris colombiana columbaria communis concolor congica conspicillata
corax cornuta corone coronata costaricensis crassirostris cristata crocea cruenta cubensis cucullata cuneata curvirostris
cyanea cyanocephala cyanoleuca cyanoptera dauma davidi decipiens decora delicata deserti diadema dichroa discolor diops
domestica dominica dorsalis dryas dubia dumetoria ecaudata edwardsi elegans elata elisabeth erythrocephala erythrogaster
erythrophris erythroptera eupatria europaea euryptera excelsa eximia fasciata felix ferruginea ferox finschi flammea flava
flavescens flaviventris flavirostris florida fluviatilis formosa fortis frontalis fulica fulva fuliginosa fumosa funebris
furcata fusca galapagoensis galbula galeata garrula gayi gigantea glacialis glandaria glauca godeffroyi gouldi graculina
granti grisea griseicapilla griseonucha grandis guianensis gularis guttata gutturalis haemastica hartlaubi hispanica heinrothi
hemprichi himalayana hirundo hodgsoni hottentotta humeralis hybrida hyperborea hypoleuca icterina ignita imperialis imitans
incana indica inornata insignis insularis intermedia iris isabellina jacksoni jamaicensis jardini javanica johannae jugularis
kaempferi kirki kori labradoria lafresnayi lapponica lanceolata lateralis latirostris layardi leadbeateri leucocephala
leucogaster leuconota leucoptera leucotis levaillanti lineata livida longicauda longipennis longirostris luctuosa ludoviciana
lugubris lutea luteiventris macgregori macrodactyla macroura maculata magellanica magna magnirostris major malabarica
malaccensis manilata marginata marina martii maxima mexicana meleagris melanocephala melanogaster melanoleuca melanops
melanura melba melodia minor minima mirabilis modesta moluccensis monacha montana monticola moschata motmot murina mustelina
mystacea naevia nana narina nativitatis nebularia nebulosa neglecta nicobarica nigra nigricans nigriceps nigricollis nigripes
nigrita nilotica nipalensis nitens nivalis nobilis notata novaehollandiae nuchalis obscura occidentalis occipitalis ocellata
ochracea olivacea opaca oreas orientalis ornata oryzivora pacifica palliata pallida palmarum palpebrosa paludicola papuensis
paradisaea parva passerina pectoralis pelagica pensylvanica peregrina perlata personata perspicillata peruviana petechia phaea
philippensis phoenicea picta pileata placida plumbea plumifera podargina poliocephala polyglotta pratensis princeps prunella
pulchella pulchra punctata purpurea pusilla pygmaea pyrrhoptera quadricolor querula radiata raimondi ramsayi recurvirostra
regia regulus reinwardti reticulata rex richardsi ridgwayi ridibunda rosea rostrata rubecula ruber rubiginosa rubra rubricata
rufa rufescens ruficapilla ruficauda ruficollis rufifrons rufigula rufipennis rufiventris rufula rupestris rustica sagittata
salmoni salvini sanguinea savana saturata saxatilis schlegeli sclateri scutata semitorquata senegalensis sericea serrana
severa sharpei sibilatrix sibirica similis simplex sinensis sojaka solitaria sordida spectabilis spinosa splendens squamata
stellata stolida strepera striata stresemanni strigata subcristata subflava sulphurata sultanea sumatrana superba superciliosa
swainsoni sylvatica sylvia taeniata tahitica tanki temmincki tenuirostris thoracica tibetana timoriensis togata torquata
traversi tricolor tridactyla tristis trivialis tropica turdina tyrannulus ultima umbrina undulata unicolor uropygialis ussheri
valida variegata velata velutina ventralis venusta versicolor vetula viduata virens virescens virginiana viridis viridiceps
viscivora vitellina vittata vociferans vulgaris wallacei whiteheadi williami xanthocephala xanthogaster xanthops yaruqui
yelkouan zeylonica zonata zosterops
""".split()  # noqa: SIM905


# ---- keystrokes ------------------------------------------------------------------------------------------------------


def taxonomy(nodes: int = 10_000, seed: int = 0) -> list[str]:
    """Made-up orders, families, genera and species. Few genera have many species, as in nature; epithets are shared."""
    rng = random.Random(seed)
    genera: list[str] = sorted({(rng.choice(BEGINNINGS) + rng.choice(ENDS)).capitalize() for _ in range(2200)})[:]
    rng.shuffle(genera)
    genera = genera[:2000]
    families = [f"{name.rstrip('aeious')}idae" for name in genera[:240]]
    orders = [f"{name.rstrip('aeious')}iformes" for name in genera[240:280]]
    weights = [1 / (i + 1) ** 0.65 for i in range(len(genera))]
    upper, species = list(dict.fromkeys([*orders, *families, *genera])), set()
    while len(upper) + len(species) < nodes:
        species.add(f"{rng.choices(genera, weights)[0]} {rng.choice(EPITHETS)}")
    return [*upper, *sorted(species)]


STRATEGIES = """
import {{ Names, wordsOf, SHOWN }} from {search};
import {{ readFileSync }} from "fs";
const names = JSON.parse(readFileSync({names})), index = new Names();
for (const name of names) index.add(name);
const cut = (word, n) => word.slice(0, n), counts = {{}}, times = [];
const find = (query, most) => {{
  const then = performance.now(), found = index.find(query, undefined, most);
  times.push(performance.now() - then);
  return found;
}};
names.forEach((name, i) => {{
  const words = wordsOf(name);
  if (words.length > 1 && /^\\d+$/.test(words[0])) words.shift();
  const a = words[0], b = words.at(-1), two = words.length > 1;
  const place = (query) => {{ const at = find(query, SHOWN).indexOf(i); return at < 0 ? Infinity : at; }};
  const ways = {{
    "1 letter of the first word, 2 of the last, its key": place(two ? cut(a, 1) + cut(b, 2) : cut(a, 3)) < SHOWN,
    "2 letters of the first word, 1 of the last, its key": place(two ? cut(a, 2) + cut(b, 1) : cut(a, 3)) < SHOWN,
    "the same, keys 1 to 9 only": place(two ? cut(a, 2) + cut(b, 1) : cut(a, 3)) < 9,
    "2 letters of the first word, 2 of the last": place(two ? cut(a, 2) + cut(b, 2) : cut(a, 4)) === 0,
    "the first 4 letters": place(cut(words.join(""), 4)) === 0,
  }};
  ways["the better of the first and the fourth"] =
    ways["1 letter of the first word, 2 of the last, its key"] || ways["2 letters of the first word, 2 of the last"];
  for (const [way, reached] of Object.entries(ways)) counts[way] = (counts[way] ?? 0) + reached;
}});
times.sort((x, y) => x - y);
const at = (share) => times[Math.floor(times.length * share)];
console.log(JSON.stringify({{ counts, names: names.length, median: at(0.5), p95: at(0.95) }}));
"""


def measure_search() -> None:
    """Names reached with four keystrokes and Enter, without any help of a model."""
    cub = Hierarchy.read(TREES / "cub.json")
    sets = {"made-up": taxonomy(), "CUB": [name for names in cub.classes for name in names]}
    told = {}
    for title, names in sets.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "names.json").write_text(json.dumps(names))
            script = STRATEGIES.format(search=json.dumps(str(SEARCH)), names=json.dumps(str(Path(folder) / "names.json")))
            (Path(folder) / "run.mjs").write_text(script)
            out = subprocess.run(["node", str(Path(folder) / "run.mjs")], check=True, capture_output=True, text=True).stdout
        told[title] = json.loads(out)
    row("what is typed, then Enter", [f"{title}, {one['names']:,} names" for title, one in told.items()])
    print("|---|" + "---|" * len(told))
    for way in told["made-up"]["counts"]:
        row(way, [f"{one['counts'][way] / one['names']:.1%}" for one in told.values()])
    row("a search takes, median and p95", [f"{one['median']:.1f} and {one['p95']:.1f} ms" for one in told.values()])


def row(first: str, cells: Sequence[str]) -> None:
    print(f"| {first} | {' | '.join(cells)} |")


# ---- a server ----------------------------------------------------------------------------------------------------------


class Server:
    """`lht label` in a process of its own."""

    def __init__(self, data: Path, *words: str) -> None:
        self.started = time.monotonic()
        command = [sys.executable, "-m", "torchlht", "label", str(data), "--no-browser", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = ""
        while "open http" not in said:
            said = self.process.stdout.readline()
            assert said, "it ended"
        self.seconds = time.monotonic() - self.started
        found = re.search(r"open (http://([\d.]+):(\d+)/\?token=(\S+))", said)
        assert found is not None
        self.address, self.host, self.port, self.token = found[1], found[2], int(found[3]), found[4]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    def ask(
        self, wire: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> tuple[int, dict[str, object]]:
        headers = {"Authorization": f"Bearer {self.token}"}
        wire.request(method, path, None if body is None else json.dumps(body), headers)
        answer = wire.getresponse()
        return answer.status, json.loads(answer.read())

    def memory(self) -> float:
        """MB that the server's own process holds now."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)


def made_up(folder: Path, samples: int, leaves: int, seed: int = 0) -> Path:
    """An .npz whose samples are labelled to different depths, of a tree with three levels."""
    rng = np.random.default_rng(seed)
    family = np.sort(np.r_[np.arange(leaves // 20 + 1), rng.integers(0, leaves // 20 + 1, leaves - leaves // 20 - 1)])
    order = np.sort(np.r_[np.arange(leaves // 200 + 1), rng.integers(0, leaves // 200 + 1, family.max() - leaves // 200)])
    leaf = (
        np.r_[np.arange(leaves), rng.integers(0, leaves, samples - leaves)]
        if samples >= leaves
        else rng.integers(0, leaves, samples)
    )
    y = np.stack([leaf, family[leaf], order[family[leaf]]], axis=1)
    hidden = rng.random(samples)
    hidden[:leaves] = 0  # every class is named once
    y[hidden > 0.4, 0] = -1
    y[hidden > 0.7, 1] = -1
    y[hidden > 0.9, 2] = -1
    names = taxonomy(leaves + 2500)[-leaves:]
    np.savez(
        folder / "many.npz", x=rng.normal(size=(samples, 8)).astype(np.float32), y=y, train=np.ones(samples, dtype=bool),
        levels=np.array(["species", "family", "order"]), classes_species=np.array(names),
    )  # fmt: skip
    return folder / "many.npz"


def measure_speed(samples: int = 50_000, leaves: int = 10_000, answers: int = 1000) -> None:
    """The round trip of an answer, the first page, and memory."""
    with tempfile.TemporaryDirectory() as place:
        server = Server(made_up(Path(place), samples, leaves), "--no-learn")
        wire = server.connect()
        nodes = len(server.ask(wire, "GET", "/api/tree")[1]["names"])  # type: ignore[arg-type]
        rng, taken, whole = random.Random(0), [], []
        for i in rng.sample(range(samples), answers):
            then = time.perf_counter()
            status, _ = server.ask(
                wire, "POST", "/api/answer", {"samples": [[i, 0]], "what": "label", "node": rng.randrange(nodes)}
            )
            taken.append(time.perf_counter() - then)
            assert status == 200
            server.ask(wire, "GET", f"/api/sample/{rng.randrange(samples)}")
            whole.append(time.perf_counter() - then)
        queue = time.perf_counter()
        server.ask(wire, "GET", "/api/queue?name=open&count=60")
        queue = time.perf_counter() - queue
        pages = first_pages(server.address)
        print(f"{samples:,} samples, {nodes:,} classes at three levels, {answers:,} answers one after the other:\n")
        print("| what | median | p95 |\n|---|---|---|")
        for name, times in (("an answer, on disk and acknowledged", taken), ("and all about the next sample", whole)):
            print(f"| {name} | {1e3 * statistics.median(times):.1f} ms | {1e3 * np.quantile(times, 0.95):.1f} ms |")
        median, slowest = statistics.median(pages), max(pages)
        print(f"| the page in Chromium, from its address to the first sample | {median:.2f} s | {slowest:.2f} s (slowest) |")
        print(f"\nA queue of 60: {1e3 * queue:.0f} ms. From the command to the address: {server.seconds:.1f} s.")
        print(f"Memory of the server: {server.memory():.0f} MB.")
        server.stop()


def first_pages(address: str, times: int = 5) -> list[float]:
    """Seconds until the page is ready, in windows without anything kept from before."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        browser.new_context().new_page().goto("about:blank")
        for _ in range(times):
            page = browser.new_context().new_page()
            then = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("html[data-ready]", state="attached")
            found.append(time.perf_counter() - then)
        browser.close()
    return found


# ---- kills -------------------------------------------------------------------------------------------------------------


def measure_kills(kills: int, seed: int = 0) -> None:
    """Kill the server at random moments while two clients answer as fast as they can. What was acknowledged must be there."""
    from torchlht.serve.label.journal import FILE, Answer, read_journal

    rng, acknowledged, torn, lost = random.Random(seed), [], 0, 0
    with tempfile.TemporaryDirectory() as place:
        data = made_up(Path(place), 400, 60)
        journal = Path(f"{data}.labels") / FILE
        for _ in range(kills):
            server = Server(data, "--no-learn")
            clients = [threading.Thread(target=answer_on, args=(server, name, acknowledged)) for name in ("ann", "ben")]
            for client in clients:
                client.start()
            time.sleep(rng.uniform(0.0, 1.0))
            server.process.kill()
            server.process.communicate()
            for client in clients:
                client.join()
            read = read_journal(journal)
            torn += read.torn > 0
            there = {n: one for n, one in enumerate(read.entries) if isinstance(one, Answer)}
            lost += sum(n not in there or (there[n].by, there[n].samples[0]) != said for n, said in acknowledged)
    more = len(there) - len(acknowledged)
    print(f"{kills} kills (-9), {len(acknowledged):,} answers shown as saved, {lost} of them missing after a kill.")
    print(f"{more} more were on disk before they could be acknowledged; {torn} kills left a torn line.")


def answer_on(server: Server, name: str, acknowledged: list[tuple[int, tuple[str, str]]]) -> None:
    """Answer until the server is gone; keep what it acknowledged."""
    rng, wire = random.Random(f"{name} {server.port} {time.time()}"), server.connect()
    try:
        briefs = server.ask(wire, "GET", "/api/queue?name=all&count=500")[1]["samples"]
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return
    versions = {one["i"]: one["version"] for one in briefs}  # type: ignore[attr-defined]
    while True:
        i = rng.randrange(0, 400, 2) + (name == "ben")
        body = {"samples": [[i, versions[i]]], "what": "label", "node": rng.randrange(60), "by": name}
        try:
            status, said = server.ask(wire, "POST", "/api/answer", body)
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return
        assert status == 200
        versions[i] = said["event"]
        acknowledged.append((int(said["event"]), (name, str(i))))  # type: ignore[call-overload]


# ---- the loop ----------------------------------------------------------------------------------------------------------


ORDERS = ("next", "next: ours", "random", "file order")
LEVELS = ("species", "family", "order")
COLUMNS = ("seed", "queue", "answers", *LEVELS)


def measure_loop(
    features: Path, table: Path, orders: Sequence[str], answers: int, batch: int, unable: float, seeds: int
) -> None:
    """Accuracy on the test part against answers given, for some orders of asking: lines of a table."""
    import torch

    from torchlht.data.samples import hashed, read_data
    from torchlht.serve.label.asking import next_questions
    from torchlht.serve.label.costs import Asking
    from torchlht.serve.label.learning import Material, accuracies, learned

    torch.set_num_threads(1)
    samples = read_data(features)
    assert samples.features is not None
    train, test, tree = samples.index("train"), samples.split == "test", samples.hierarchy
    material = Material(np.arange(len(samples)), samples.features, samples.keys, samples.split)
    rows: list[tuple[int, str, int, tuple[float, ...]]] = []
    for seed in range(seeds):
        cannot = np.array([hashed(seed, "cannot", key) < unable * 2**64 for key in samples.keys])
        told = np.where(cannot[:, None] & (np.arange(len(tree)) == 0), -1, samples.labels)
        shuffled = np.random.default_rng(seed).permutation(train)
        for name in orders:
            strategy = name.partition(": ")[2] or None
            asking = Asking(cannot_tell={tree.levels[0]: unable}, strategy=strategy, seed=seed)
            labels, opinion = np.full_like(samples.labels, -1), None
            for n in range(batch, answers + 1, batch):
                done = (labels >= 0).any(axis=1)
                if name.startswith("next"):
                    asked = next_questions(material, labels, done, tree, asking, opinion).rows[:batch]
                else:
                    order = shuffled if name == "random" else train
                    asked = order[~done[order]][:batch]
                labels[asked] = told[asked]
                if not name.startswith("next") and n % (2 * batch) and n != batch:
                    continue
                mind, opinion = learned(material, labels, (labels >= 0).any(axis=1), tree, seed)
                rows.append((seed, name, n, accuracies(mind, material.x, samples.labels, test)))
                print(*rows[-1], file=sys.stderr, flush=True)
    text = "".join(f"{seed},{name},{n},{','.join(f'{s:.4f}' for s in shares)}\n" for seed, name, n, shares in rows)
    head = "" if table.is_file() and table.stat().st_size else f"{','.join(COLUMNS)}\n"
    with table.open("a") as file:
        file.write(head + text)


def tell_loop(table: Path, figure: Path | None, tested: int = 5794) -> None:
    """The table of the page, and its figure, from the file of all figures."""
    import csv

    curves: dict[str, dict[int, list[list[float]]]] = {name: {} for name in ORDERS}
    for one in csv.DictReader(table.open()):
        curves[one["queue"]].setdefault(int(one["answers"]), []).append([100 * float(one[level]) for level in LEVELS])
    row("answers", [f"{name}: {', '.join(LEVELS)}" for name in ORDERS])
    print("|---|" + "---|" * len(ORDERS))
    for n in sorted(set.intersection(*(set(curve) for curve in curves.values()))):
        cells = []
        for name in ORDERS:
            found = np.array(curves[name][n])
            spread = f" ± {found[:, 0].std(ddof=1):.1f}" if len(found) > 1 else ""
            cells.append(f"{found[:, 0].mean():.1f}{spread}, {found[:, 1].mean():.1f}, {found[:, 2].mean():.1f}")
        row(f"{n:,}", cells)
    if figure is not None:
        draw(curves, figure, tested)


def draw(curves: dict[str, dict[int, list[list[float]]]], path: Path, tested: int) -> None:
    """The figure of the loop: means, and the range over seeds."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.1), dpi=110, layout="constrained")
    for k, axis in enumerate(axes):
        for (name, curve), style in zip(curves.items(), ("o-", "d-.", "s--", "^:"), strict=True):
            at, found = sorted(curve), [np.array(curve[n])[:, k] for n in sorted(curve)]
            line = axis.plot(at, [one.mean() for one in found], style, ms=3.5, label=name)[0]
            axis.fill_between(at, [o.min() for o in found], [o.max() for o in found], color=line.get_color(), alpha=0.15, lw=0)
        axis.set(title=f"{LEVELS[k]}, % right of {tested:,} test birds", xlabel="answers given", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["search", "speed", "kills", "loop"])
    parser.add_argument("features", nargs="?", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--answers", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--orders", default=",".join(ORDERS), help="of the loop; without data, only the table is told")
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results/label_loop.csv")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(arguments)
    if args.what == "search":
        measure_search()
    elif args.what == "speed":
        measure_speed()
    elif args.what == "kills":
        measure_kills(args.kills, args.seed)
    else:
        if args.features is not None:
            measure_loop(args.features, args.table, args.orders.split(","), args.answers, args.batch, 0.15, args.seeds)
        tell_loop(args.table, args.figure)


if __name__ == "__main__":
    main()
