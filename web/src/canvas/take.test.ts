import { beforeEach, expect, test, vi } from "vitest";
import { emptyCanvas } from "./document";
import { exportCanvas } from "./exchange";
import { begin } from "./history";
import { noticeMs } from "./notices";
import { useCanvas } from "./store";
import { takeFile } from "./take";

const canvas = useCanvas.getState;
beforeEach(() => useCanvas.setState({ history: begin(emptyCanvas()), notice: null }));

test("given a canvas file, then it is on the screen and the page says so", async () => {
	const text = exportCanvas({ ...emptyCanvas(), name: "Dropped" });
	await takeFile(new File([text], "dropped.json"));
	expect([canvas().history.present.name, canvas().notice]).toEqual(["Dropped", "dropped.json is imported: 0 nodes"]);
});

test("given a file that is no canvas, then what is on the screen stays and the page says why", async () => {
	await takeFile(new File(["{"], "broken.json"));
	expect(canvas().history.past).toEqual([]);
	expect(canvas().notice).toContain("broken.json is not imported: the file is not JSON");
});

test("given a file larger than a canvas may be, then it is not even read", async () => {
	const text = vi.fn();
	await takeFile({ name: "film.mkv", size: 40_000_000_000, text });
	expect([text.mock.calls.length, canvas().notice]).toEqual([
		0,
		"film.mkv is not imported: the file is larger than 4 MiB",
	]);
});

test("given a notice, then it stays as long as it takes to read", () => {
	expect([noticeMs("copied 1 node"), noticeMs("x".repeat(300)), noticeMs("x".repeat(10_000))]).toEqual([
		5_000, 18_000, 30_000,
	]);
});
