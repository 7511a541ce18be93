// Live: the training view of a reward log that is still written. The server reads what was added; 204 says that nothing was.

import { get } from "./api.js";
import { count, el, num, note, plural, section, written } from "./dom.js";
import { alertOf, choice, field } from "./forms.js";
import { keeping } from "./keep.js";
import { stateTag } from "./states.js";
import { curves, learnedTable } from "./training.js";

const POLLED = 2000;

export async function live(main, project) {
  const logs = project.files.filter((file) => file.name.endsWith(".jsonl") && !/\.rank\d+\.jsonl$/.test(file.name));
  const likely = (file) => /(^|\/)rewards[^/]*\.jsonl$/.test(file.name);
  logs.sort((a, b) => likely(b) - likely(a) || b.changed - a.changed);
  const asked = new URLSearchParams(location.search).get("file");
  const first = logs.length && likely(logs[0]) ? logs[0].name : "";
  const file = choice([["", "choose a log"], ...logs.map((one) => one.name)], { name: "file", value: asked ?? first });
  const state = el("span", { class: "muted", role: "status" });
  const problem = el("div");
  const view = el("div", { class: "live" });
  let stamp = null, timer = null;
  main.replaceChildren(
    section("Live", note("Follows the reward log of a training, rewards.jsonl, while it is written. Only the rows that were added are read."), el("div", { class: "controls" }, field("reward log", file), state), problem),
    view,
  );
  if (!logs.length) return view.replaceChildren(note("The folder has no reward log. Set reward_log of the training to a file in this folder, for example runs/mine/rewards.jsonl."));
  file.addEventListener("change", () => {
    history.replaceState(null, "", `/live?${new URLSearchParams({ file: file.value })}`);
    stamp = null;
    view.replaceChildren();
    poll();
  });
  await poll();

  async function poll() {
    clearTimeout(timer);
    const name = file.value;
    if (!name) return;
    try {
      const answer = await get("live", { file: name, known: stamp });
      if (name !== file.value) return;
      if (answer.status !== 204) draw(await answer.json());
      problem.replaceChildren();
    } catch (error) {
      problem.replaceChildren(alertOf(error.message));
    }
    timer = setTimeout(poll, POLLED);
  }

  function draw(found) {
    stamp = found.stamp;
    const { steps } = found.training;
    const last = steps.at(-1);
    state.textContent = `${plural(found.rows, "completion")}, ${steps.length ? `step ${count(last)}` : "no step yet"}, ${new Date().toLocaleTimeString()}`;
    if (!steps.length) return view.replaceChildren(note("The log has no rows yet."));
    keeping(view, () => view.replaceChildren(
      section("What the policy learned", learnedTable(found.training.learned)),
      section("Over the steps", note("Faint lines are the values of the steps, strong lines their moving average."), el("div", { class: "columns" }, curves(found.training))),
      section("Latest completions", el("div", { class: "cards" }, found.latest.toReversed().map(card)), el("p", {}, el("a", { href: `/report?${new URLSearchParams({ file: file.value, follow: "" })}` }, "All completions, followed in the report"))),
    ));
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
