/** A canvas file that somebody chose or dropped. */

import { describe } from "@/api/client";
import { count } from "@/ui/words";
import { LIMITS } from "./document";
import { ImportError, importCanvas } from "./exchange";
import { useCanvas } from "./store";

/** Shows the canvas of the file; the page says that it did, or what is wrong with the file. */
export async function takeFile(file: Pick<File, "name" | "size" | "text">): Promise<void> {
	const { replace, say } = useCanvas.getState();
	try {
		// Before it is read: a file may be larger than all memory.
		if (file.size > LIMITS.bytes) throw new ImportError(`the file is larger than ${LIMITS.bytes >> 20} MiB`);
		const canvas = importCanvas(await file.text());
		replace(canvas);
		say(`${file.name} is imported: ${count(canvas.nodes.length, "node")}`);
	} catch (error) {
		say(`${file.name} is not imported: ${describe(error)}`);
	}
}
