// The shift explorer: the same sums as Cells.mix in statistics/mixes.py.
const explorer = (() => {
  const held = document.getElementById("cells");
  if (!held) return null;
  const { bins, factors, budgets, worst, cells, plot } = JSON.parse(held.textContent);
  const { bin, level, count, confidence, outcome, noise } = cells;
  const size = count.length;
  const rows = count.reduce((a, b) => a + b, 0);

  const densityOf = (tilt, scale) => {
    let most = -Infinity;
    for (let i = 0; i < size; i++) most = Math.max(most, scale * tilt[i]);
    const density = new Float64Array(size);
    let total = 0;
    for (let i = 0; i < size; i++) {
      density[i] = Math.exp(scale * tilt[i] - most);
      total += density[i] * count[i];
    }
    let kl = 0;
    for (let i = 0; i < size; i++) {
      density[i] *= rows / total;
      kl += count[i] * density[i] * Math.log(Math.max(density[i], 1e-300));
    }
    return { density, kl: Math.max(kl / rows, 0) };
  };

  const reachOf = (tilt, budget) => {
    if (densityOf(tilt, 1).kl <= budget) return 1;
    let low = 0;
    let high = 1;
    for (let i = 0; i < 50; i++) {
      const middle = (low + high) / 2;
      if (densityOf(tilt, middle).kl <= budget) low = middle;
      else high = middle;
    }
    return low;
  };

  const mixOf = (settings, budget) => {
    const tilt = new Float64Array(size);
    settings.forEach((tilts, f) => {
      for (let i = 0; i < size; i++) tilt[i] += tilts[level[f][i]];
    });
    const reach = reachOf(tilt, budget);
    const { density, kl } = densityOf(tilt, reach);
    const share = new Float64Array(bins);
    const said = new Float64Array(bins);
    const came = new Float64Array(bins);
    const chance = new Float64Array(bins);
    const shares = factors.map((factor) => new Float64Array(factor.levels.length));
    for (let i = 0; i < size; i++) {
      const weight = density[i] / rows;
      share[bin[i]] += weight * count[i];
      said[bin[i]] += weight * confidence[i];
      came[bin[i]] += weight * outcome[i];
      chance[bin[i]] += weight * weight * noise[i];
      shares.forEach((own, f) => { own[level[f][i]] += weight * count[i]; });
    }
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    return {
      ece: sum(came.map((value, b) => Math.abs(value - said[b]))),
      accuracy: sum(came),
      mean_confidence: sum(said),
      by_chance: Math.sqrt(2 / Math.PI) * sum(chance.map(Math.sqrt)),
      kl, reach, shares, share,
      confidence: said.map((value, b) => value / share[b]),
      right: came.map((value, b) => value / share[b]),
    };
  };

  const whole = (share) => `${Math.floor(100 * share + 0.5)} %`;

  const describe = (mix) => {
    const moves = factors.map((factor, f) => {
      let at = 0;
      const grows = (i) => mix.shares[f][i] - before.shares[f][i];
      factor.levels.forEach((_, i) => { if (grows(i) > grows(at)) at = i; });
      const by = Math.round(1e6 * grows(at)) / 1e6;
      return { by, phrase: factor.phrases[at], then: before.shares[f][at], now: mix.shares[f][at] };
    }).filter((move) => move.by >= 0.01);
    moves.sort((a, b) => b.by - a.by);
    if (!moves.length) return "the rows as they are";
    return "more rows " + moves.slice(0, 3)
      .map((move) => `${move.phrase} (${whole(move.then)} → ${whole(move.now)})`).join(", ");
  };

  const zero = factors.map((factor) => factor.levels.map(() => 0));
  const before = mixOf(zero, Infinity);
  return { budgets, worst, zero, before, mixOf, describe, whole, plot };
})();

if (explorer) {
  const { budgets, worst, zero, before, mixOf, describe, whole, plot } = explorer;
  const place = document.getElementById("explorer");
  const budget = document.getElementById("budget");
  const tilts = [...place.querySelectorAll("[data-factor]")];
  const marks = [...place.querySelectorAll("svg .mark")];
  const ghosts = [...place.querySelectorAll("svg .ghost")];
  const points = (share) => `${(100 * share).toFixed(1)} points`;
  const written = { ece: points, by_chance: points, accuracy: (share) => `${(100 * share).toFixed(1)} %` };
  let shown = "none"; // none, worst or own

  const settings = () => {
    const now = zero.map((levels) => [...levels]);
    for (const tilt of tilts) now[tilt.dataset.factor][tilt.dataset.level] = Number(tilt.value);
    return now;
  };

  const move = (mark, mix, b) => {
    const there = mix.share[b] > 1e-9;
    mark.toggleAttribute("hidden", !there);
    mark.style.display = there ? "" : "none";
    if (!there) return;
    mark.setAttribute("cx", plot.left + plot.side * mix.confidence[b]);
    mark.setAttribute("cy", plot.top + plot.side * (1 - mix.right[b]));
    mark.setAttribute("r", Math.max(plot.smallest, plot.largest * Math.sqrt(Math.min(2 * mix.share[b], 1))));
  };

  const show = () => {
    const allowed = budgets[budget.value];
    const mix = mixOf(settings(), allowed.kl);
    for (const [name, write] of Object.entries(written)) {
      for (const place of document.querySelectorAll(`[data-number="${name}"]`)) {
        place.textContent = write(mix[name]);
        place.dataset.value = mix[name];
      }
    }
    marks.forEach((mark, b) => move(mark, mix, b));
    for (const tilt of tilts) {
      const { factor, level } = tilt.dataset;
      const then = before.shares[factor][level];
      const now = mix.shares[factor][level];
      const said = whole(then) === whole(now) ? `${whole(now)} of rows` : `${whole(then)} → ${whole(now)} of rows`;
      tilt.nextElementSibling.textContent = said;
      tilt.setAttribute("aria-valuetext", said);
    }
    document.getElementById("budget-said").textContent = allowed.said;
    budget.setAttribute("aria-valuetext", allowed.said);
    const words = describe(mix);
    const kinds = { none: "The rows as they are", worst: "The worst case found: ", own: "Your mix: " };
    document.getElementById("mix-kind").textContent = kinds[shown];
    document.getElementById("mix-said").textContent = shown === "none" ? "" : words;
    document.getElementById("mix-means").textContent = shown === "none" ? "" : meaning(mix);
    document.getElementById("reach").textContent = mix.reach < 0.995 && shown === "own"
      ? `These sliders ask for a larger shift: shown is ${whole(mix.reach)} of the way.` : "";
    place.dataset.kl = mix.kl;
    place.dataset.reach = mix.reach;
  };

  const meaning = ({ mean_confidence: said, accuracy: real }) => {
    const side = said - real > 0.01 ? "too high" : real - said > 0.01 ? "too low" : "neither too high nor too low";
    const [sure, comes] = [said, real].map((share) => whole(share).replace(" ", "\u00a0"));
    return `. There the probabilities are, on average, ${side}: ${sure}, and ${comes} come true.`;
  };

  // The sliders that a worst case has moved can be seen.
  const unfoldMoved = (mix) => place.querySelectorAll(".factor").forEach((factor, f) => {
    if (mix.shares[f].some((now, i) => Math.abs(now - before.shares[f][i]) > 0.05)) factor.open = true;
  });

  const set = (values, kind) => {
    for (const tilt of tilts) tilt.value = values[tilt.dataset.factor]?.[tilt.dataset.level] ?? 0;
    shown = kind;
    show();
    if (kind === "worst") unfoldMoved(mixOf(settings(), budgets[budget.value].kl));
  };

  for (const tilt of tilts) {
    tilt.addEventListener("input", () => { shown = settings().flat().some(Boolean) ? "own" : "none"; show(); });
  }
  budget.addEventListener("input", () => (shown === "worst" ? set(worst[budget.value], "worst") : show()));
  document.getElementById("worst").addEventListener("click", () => set(worst[budget.value], "worst"));
  document.getElementById("reset").addEventListener("click", () => set(zero, "none"));
  for (const [name, write] of Object.entries(written)) {
    for (const old of place.querySelectorAll(`[data-before="${name}"]`)) old.textContent = write(before[name]);
  }
  ghosts.forEach((ghost, b) => move(ghost, before, b));
  set(zero, "none");
}
