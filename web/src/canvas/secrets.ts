/** Keys that somebody typed into a canvas: none leaves the browser with it. Pure. */

/** What stands for a key. */
export const SHOWN = "[secret]";

/** What keys of known services look like, private keys, passwords in addresses, and tokens of this server. */
const KEYS = [
	/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/,
	/\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/,
	/\bgh[pousr]_[A-Za-z0-9]{36,}/,
	/\bgithub_pat_\w{40,}/,
	/\bglpat-[\w-]{20,}/,
	/\bxox[abeprs]-[\w-]{20,}/,
	/\b[sr]k_(?:live|test)_\w{16,}/,
	/\bsk-[\w-]{20,}/,
	/\bgsk_\w{20,}/,
	/\bhf_[A-Za-z0-9]{30,}/,
	/\bAIza[\w-]{35}/,
	/\brr_[A-Za-z0-9_-]{32,}/,
	/\beyJ[\w-]{10,1000}\.eyJ[\w-]{10,1000}\.[\w-]{10,}/,
	/(?<=\bBearer )[\w.~+/-]{20,}=*/,
	/(?<=\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)/,
];
const ANY = new RegExp(KEYS.map((key) => key.source).join("|"), "g");

/** The text with a word in the place of each key, and how many there were. */
export function masked(text: string): { text: string; keys: number } {
	let keys = 0;
	const without = text.replace(ANY, () => {
		keys += 1;
		return SHOWN;
	});
	return { text: without, keys };
}
