import { expect, test } from "vitest";
import { pageOf, pathsOf } from "./paths";

test("given a namespace that was chosen, then everything that is asked of a project names it", () => {
	const path = pathsOf("p/1", "team");
	expect([path(), path("/report"), path("/file", { path: "a b.py" })]).toEqual([
		"/projects/p%2F1?namespace=team",
		"/projects/p%2F1/report?namespace=team",
		"/projects/p%2F1/file?namespace=team&path=a+b.py",
	]);
	expect([pageOf("p", "team"), pageOf(null, "team")]).toEqual([
		"/ui/projects/?id=p&namespace=team",
		"/ui/projects/?namespace=team",
	]);
});

test("given none, then the server is left to take that of the token", () => {
	expect([pathsOf("p", null)(), pathsOf("p", null)("/files", { limit: "500" })]).toEqual([
		"/projects/p",
		"/projects/p/files?limit=500",
	]);
	expect([pageOf("p", null), pageOf(null, null)]).toEqual(["/ui/projects/?id=p", "/ui/projects/"]);
});
