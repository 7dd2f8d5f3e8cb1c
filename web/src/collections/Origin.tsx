import type { SourceVersion } from "@/api/shapes";
import { bytes, count, moment } from "@/ui/words";

/** What the bytes that a version was made of say of themselves, and where and when they were read; nothing where none of it is known. */
export function Origin({ source, of }: { source: string; of: SourceVersion | undefined }) {
	if (!of) return null;
	const made = [of.media_type, of.encoding].filter(Boolean).join(", ");
	const facts = [
		["title", of.title],
		["author", of.author],
		["from", source],
		["made of", [made, of.size_bytes != null && bytes(of.size_bytes)].filter(Boolean).join(", ")],
		["length", of.pages != null && count(of.pages, "page")],
		["fetched", moment(of.fetched_at)],
		["last seen", of.seen_at !== of.fetched_at && moment(of.seen_at)],
	] as const;
	return (
		<dl aria-label="where it is from" className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-3 text-xs">
			{facts.map(
				([name, words]) =>
					words && (
						<div key={name} className="contents">
							<dt className="text-soft">{name}</dt>
							<dd className="break-words">{words}</dd>
						</div>
					),
			)}
		</dl>
	);
}
