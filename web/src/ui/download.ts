/** Gives the user a file. */
export function download(name: string, text: string, type: string): void {
	const url = URL.createObjectURL(new Blob([text], { type }));
	const link = Object.assign(window.document.createElement("a"), {
		href: url,
		download: name.replace(/[^\w. -]/g, "_"),
	});
	link.click();
	URL.revokeObjectURL(url);
}
