import type { Store } from "./tabs";

/** A browser's storage in memory, for tests; it has room for so many characters. */
export class MemoryStore implements Store {
	private readonly texts: Map<string, string>;

	constructor(
		texts: Iterable<[string, string]> = [],
		public room = Number.POSITIVE_INFINITY,
	) {
		this.texts = new Map(texts);
	}

	get length() {
		return this.texts.size;
	}

	key = (at: number) => [...this.texts.keys()][at] ?? null;

	getItem = (key: string) => this.texts.get(key) ?? null;

	setItem = (key: string, text: string) => {
		const others = [...this.texts].reduce((sum, [one, { length }]) => (one === key ? sum : sum + length), 0);
		if (others + text.length > this.room) throw new DOMException("no room", "QuotaExceededError");
		this.texts.set(key, text);
	};

	removeItem = (key: string) => void this.texts.delete(key);

	/** What a tab that is duplicated begins with. */
	copy = () => new MemoryStore(this.texts, this.room);
}
