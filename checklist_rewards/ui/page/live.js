// Live: the training view of a reward log that is still written. The server reads what was added; 204 says that nothing was.

import { get } from "./api.js";
import { choice, count, el, field, note, num, plural, section, stateTag, written } from "./dom.js";
import { alertOf } from "./forms.js";
import { keeping } from "./keep.js";
import { curves, learnedTable } from "./training.js";

const POLLED = 2000, QUIET = 60, MOST_ALARMS = 5;

export async function live(main, project) {
  const logs = project.files.filter((file) => file.kind === "rewards" && !/\.rank\d+\.jsonl$/.test(file.name)).sort((a, b) => b.changed - a.changed);
  const asked = new URLSearchParams(location.search).get("file");
  const names = logs.map((one) => one.name);
  if (asked && !names.includes(asked)) names.push(asked);
  const file = choice(names, { name: "file", value: asked ?? names[0] });
  const state = el("span", { class: "muted", role: "status" });
  const problem = el("div");
  const view = el("div", { class: "live" });
  let last = null, heard = 0, timer = null;
  main.replaceChildren(
    section("Live", note("Follows the reward log of a training, rewards.jsonl, while it is written. Only the rows that were added are read."), el("div", { class: "filters" }, field("reward log", file), state), problem),
    view,
  );
  if (!names.length) return view.replaceChildren(note("The folder has no reward log. A reward writes one with log=\"rewards.jsonl\", a path in this folder: ", el("code", {}, "ChecklistReward(..., log=\"runs/mine/rewards.jsonl\")"), ", or log: in the YAML file of the reward."));
  file.addEventListener("change", () => {
    history.replaceState(null, "", `/live?${new URLSearchParams({ file: file.value })}`);
    last = null;
    view.replaceChildren();
    poll();
  });
  await poll();

  async function poll() {
    clearTimeout(timer);
    const name = file.value;
    if (!name) return;
    try {
      const answer = await get("live", { file: name, known: last?.stamp });
      if (name !== file.value) return;
      if (answer.status !== 204) {
        last = await answer.json();
        heard = Date.now() - 1000 * last.quiet;
        draw(last);
      } else if (isQuiet() && !view.querySelector(".ended")) draw(last);
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
    }
    timer = setTimeout(poll, POLLED);
  }

  /** Whether nothing was added for so long that the training may have ended. */
  function isQuiet() {
    return Date.now() - heard > 1000 * QUIET;
  }

  function draw(found) {
    const { steps } = found.training, last = steps.at(-1);
    state.textContent = `${plural(found.rows, "completion")}, ${steps.length ? `step ${count(last)}` : "no step yet"}; updated at ${new Date().toLocaleTimeString()}`;
    if (!steps.length) return view.replaceChildren(note("The log has no rows of training yet."));
    keeping(view, () => view.replaceChildren(
      el("div", { class: "columns" }, found.monitor && watched(found.monitor), isQuiet() && ended()),
      section("Over the steps", note("Faint lines are the values of the steps, strong lines their moving average."), el("div", { class: "columns" }, curves(found.training))),
      section("What the policy learned", learnedTable(found.training.learned)),
      section("Latest completions", el("div", { class: "cards" }, found.latest.toReversed().map(card)), el("p", {}, el("a", { href: `/report?${new URLSearchParams({ file: file.value })}` }, "All completions in the report"))),
    ));
  }

  /** The alarms of the run so far, the last ones first, and the worst degenerate reply. */
  function watched({ alarms: raised, steps, canaries }) {
    const worst = canaries.toSorted((a, b) => (b.score ?? 0) - (a.score ?? 0))[0];
    return section(
      raised.length ? `${plural(raised.length, "alarm")} of the monitor` : "Monitor",
      raised.length ? el("ul", { class: "attention" }, raised.slice(-MOST_ALARMS).reverse().map((alarm) => el("li", { class: "failed" }, `Step ${count(alarm.step)}, ${alarm.signal.replaceAll("_", " ")}: `, el("span", { class: "muted" }, alarm.message)))) : note(`No alarm in ${plural(steps.length, "step")}.`),
      worst ? note(`Of ${plural(canaries.length, "degenerate reply").replace("replys", "replies")}, the judge gives most to “${worst.canary}”: `, num(worst.score), ".") : null,
      el("p", {}, el("a", { href: `/report?${new URLSearchParams({ file: file.value })}#/0/monitor` }, "The monitor's signals")),
    );
  }

  /** What to look at when the log does not grow any more. */
  function ended() {
    const to = (fragment, shown) => el("li", {}, el("a", { href: `/report?${new URLSearchParams({ file: file.value })}#/0/${fragment}` }, shown));
    return section("The log has stopped growing", note("If the training has ended, look at this next:"), el("ul", { class: "attention ended" }, to("training", "What the policy learned, and one prompt over the run"), to("matrix", "The completions, sorted by reward: would you reward the best of them?"), to("overview", "Questions without an answer, and items that always pass")));
  }

  function card(one) {
    return el(
      "article",
      { class: "card" },
      el("h3", {}, `Step ${one.step}`),
      el("div", {}, "reward ", num(one.reward), " ", stateTag(one.state)),
      el("div", { class: "muted two-lines", dir: "auto" }, one.prompt ?? ""),
      written(one.completion),
      el("ul", { class: "passed" }, one.items.map((item) => el("li", {}, el("span", { class: `pill ${item.passed === null ? "open" : item.passed ? "pass" : "fail"}` }, item.passed === null ? "unanswered" : item.passed ? "pass" : "fail"), ` ${item.question}`))),
    );
  }
}
