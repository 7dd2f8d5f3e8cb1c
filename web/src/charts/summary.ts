/** Curves in words, for whoever does not see them. Pure. */

type Line = { label: string; values: (number | null)[] };

export function summary(x: number[], xLabel: string, lines: Line[]): string {
	if (x.length === 0) return "no values yet";
	const words = lines.flatMap(({ label, values }) => {
		const known = values.filter((value) => value !== null);
		const [first, last] = [known[0], known.at(-1)];
		if (first === undefined || last === undefined) return [];
		const lowest = known.reduce((least, value) => Math.min(least, value), first);
		return [`${label} from ${short(first)} to ${short(last)}, lowest ${short(lowest)}`];
	});
	return `${xLabel} ${short(x[0] ?? 0)} to ${short(x.at(-1) ?? 0)}; ${words.join("; ")}`;
}

function short(value: number): string {
	return String(Number(value.toPrecision(4)));
}
