/** Numbers as people read them. Pure. */

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

export function bytes(size: number): string {
	if (size === 1) return "1 byte";
	let [value, unit] = [size, 0];
	while (value >= 1024 && unit < UNITS.length - 1) {
		value /= 1024;
		unit += 1;
	}
	return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

export function seconds(count: number): string {
	if (count < 60) return `${Math.round(count)} s`;
	if (count < 3600) return `${Math.round(count / 60)} min`;
	const minutes = Math.round(count / 60);
	return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long something took: as fine as it is short, and never "0.0 s". */
export function lasted(ms: number): string {
	if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
	if (ms < 59_950) return `${(ms / 1_000).toFixed(1)} s`;
	const all = Math.round(ms / 1_000);
	if (all >= 3_600) return seconds(all);
	return all % 60 === 0 ? `${all / 60} min` : `${Math.floor(all / 60)} min ${all % 60} s`;
}

export function number(value: number): string {
	return value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 4 });
}

/** So many of something: "1 document", "8 documents". */
export function count(many: number, one: string): string {
	return `${number(many)} ${one}${many === 1 ? "" : "s"}`;
}

/** A time that is near is told by the clock, another one by its day, too. */
export function moment(at: string, now = new Date()): string {
	const date = new Date(at);
	const clock = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
	if (date.toDateString() === now.toDateString()) return clock;
	return `${date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" })}, ${clock}`;
}

/** The value that somebody has typed in the place of the present one; null where it stays. */
export function settled(typed: string, present: string, fallback: string): string | null {
	const value = typed.trim() || fallback;
	return value === present ? null : value;
}
