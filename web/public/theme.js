// Before anything is drawn: whoever likes it dark is not dazzled by a page that is light until its scripts are there.
{
	let dark = matchMedia("(prefers-color-scheme: dark)").matches;
	try {
		const kept = localStorage.getItem("riverrun.theme");
		if (kept) dark = kept === "dark";
	} catch {
		// The browser's storage is switched off.
	}
	document.documentElement.dataset.theme = dark ? "dark" : "light";
}
