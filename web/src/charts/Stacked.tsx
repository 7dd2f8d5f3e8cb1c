import clsx from "clsx";
import { number } from "@/ui/words";

type Part = { name: string; count: number; tone: "accent" | "bad" | "warn" | "soft" };
type Row = { name: string; total: number; parts: Part[] };

const TONES = { accent: "bg-accent", bad: "bg-bad", warn: "bg-warn", soft: "bg-soft" };

/** Counts as lengths in parts, with the numbers in words. */
export function Stacked({ label, rows }: { label: string; rows: Row[] }) {
	const most = rows.reduce((most, { total }) => Math.max(most, total), 1);
	return (
		<ul aria-label={label} className="space-y-1">
			{rows.map(({ name, total, parts }) => {
				const words = parts.map((part) => `${part.count} ${part.name}`).join(", ");
				return (
					<li key={name} className="grid grid-cols-[9rem_1fr_3rem] items-center gap-2" title={`${name}: ${words}`}>
						{/* Of paths the end tells them apart. */}
						<span className="truncate text-xs [direction:rtl]">
							<bdi>{name}</bdi>
						</span>
						<span aria-hidden className="flex h-3 overflow-hidden rounded bg-raised">
							{parts.map((part) => (
								<span
									key={part.name}
									className={clsx("block h-full border-ground border-r last:border-0", TONES[part.tone])}
									style={{ width: `${(100 * part.count) / most}%` }}
								/>
							))}
						</span>
						<span className="text-right text-xs tabular-nums">
							<span aria-hidden>{number(total)}</span>
							<span className="sr-only">{words}</span>
						</span>
					</li>
				);
			})}
		</ul>
	);
}
