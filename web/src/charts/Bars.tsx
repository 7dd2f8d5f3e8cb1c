import clsx from "clsx";
import { number } from "@/ui/words";

type Bar = { name: string; value: number; tone: "accent" | "bad" | "warn" | "soft" };

const TONES = { accent: "bg-accent", bad: "bg-bad", warn: "bg-warn", soft: "bg-soft" };

/** Counts as lengths, with the numbers beside them. */
export function Bars({ label, bars }: { label: string; bars: Bar[] }) {
	const most = bars.reduce((most, { value }) => Math.max(most, value), 1);
	return (
		<ul aria-label={label} className="space-y-1">
			{bars.map(({ name, value, tone }) => (
				<li key={name} className="grid grid-cols-[7rem_1fr_3rem] items-center gap-2">
					<span className="truncate text-xs" title={name}>
						{name}
					</span>
					<span aria-hidden className="h-3 overflow-hidden rounded bg-raised">
						<span className={clsx("block h-full", TONES[tone])} style={{ width: `${(100 * value) / most}%` }} />
					</span>
					<span className="text-right text-xs tabular-nums">{number(value)}</span>
				</li>
			))}
		</ul>
	);
}
