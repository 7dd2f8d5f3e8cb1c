"use client";

import type { PublicName, Surface, SurfaceChange } from "@/api/shapes";
import { Panel } from "@/ui";
import { count as counted, number } from "@/ui/words";

/** Names and files that are drawn; all of them are in the report as JSON. */
const MOST_SHOWN = 200;

/** The names that a project offers to others, and what became of them since the analysis before. */
export function PublicNames({ surface, change }: { surface: Surface; change?: SurfaceChange | null }) {
	return (
		<Panel title={`Public names: ${number(surface.count)}`}>
			{change && <Changed change={change} />}
			<details>
				<summary className="cursor-pointer py-1.5 text-soft text-xs">by file</summary>
				<dl tabIndex={0} className="max-h-96 overflow-auto">
					{surface.modules.slice(0, MOST_SHOWN).map(({ file, names }) => (
						<div key={file} className="border-line border-b py-1 last:border-0">
							<dt className="break-all font-mono text-xs">
								{file} <span className="text-soft">{number(names.length)}</span>
							</dt>
							<dd className="break-words text-xs">{names.join(", ")}</dd>
						</div>
					))}
				</dl>
				{surface.modules.length > MOST_SHOWN && (
					<p className="text-soft text-xs">{counted(surface.modules.length - MOST_SHOWN, "more file")}</p>
				)}
			</details>
		</Panel>
	);
}

/** What came and went. */
export function Changed({ change }: { change: SurfaceChange }) {
	if (change.added_count + change.removed_count === 0) {
		return <p className="text-soft text-xs">No public name came or went.</p>;
	}
	return (
		<div className="grid gap-3 xl:grid-cols-2">
			<Names title="New public names" count={change.added_count} names={change.added} />
			<Names title="Public names that are gone" count={change.removed_count} names={change.removed} />
		</div>
	);
}

function Names({ title, count, names }: { title: string; count: number; names: PublicName[] }) {
	if (count === 0) return null;
	const shown = names.slice(0, MOST_SHOWN);
	return (
		<section aria-label={title} className="min-w-0">
			<h3 className="font-semibold">
				{title}: {number(count)}
			</h3>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
			<ul tabIndex={0} className="max-h-60 overflow-auto">
				{shown.map(({ file, name }) => (
					<li key={`${file}: ${name}`} className="break-all font-mono text-xs">
						{file}: {name}
					</li>
				))}
			</ul>
			{count > shown.length && <p className="text-soft text-xs">{number(count - shown.length)} more</p>}
		</section>
	);
}
