import type { IngestView } from "@/api/client";
import { number } from "@/ui/words";

type LeftOut = NonNullable<IngestView["left_out"]>[number];

/** Extensions of one reason that are named; the others are counted. */
const MAX_NAMED = 6;

const PHRASES: Record<string, string> = {
	no_reader: "no reader",
	archive: "archives in folders are not opened",
	not_text: "no extension and no text",
	hidden_or_ignored: "hidden or ignored",
	link: "links are not followed",
	excluded: "by the globs",
	twice: "read under another address",
	beyond_limit: "beyond the limit",
};

/** The files that were left out and why, in a line as the command line has it; null where there are none. */
export function leftOutWords({ skipped, left_out = [] }: Pick<IngestView, "skipped" | "left_out">): string | null {
	if (skipped === 0) return null;
	const reasons = new Map<string, LeftOut[]>();
	for (const row of left_out) reasons.set(row.reason, [...(reasons.get(row.reason) ?? []), row]);
	const parts = [...reasons].map(([reason, rows]) => `${PHRASES[reason] ?? reason}: ${kinds(rows)}`);
	return `skipped ${number(skipped)}${parts.length > 0 ? ` (${parts.join("; ")})` : ""}`;
}

function kinds(rows: LeftOut[]): string {
	const named = rows.filter(({ extension }) => extension).slice(0, MAX_NAMED);
	const others = rows.filter((row) => !named.includes(row)).reduce((sum, { files }) => sum + files, 0);
	const parts = named.map(({ extension, files }) => (files === 1 ? extension : `${extension} (${number(files)})`));
	if (named.length === 0) return number(others);
	return [...parts, ...(others > 0 ? [`and ${number(others)} more`] : [])].join(" ");
}
