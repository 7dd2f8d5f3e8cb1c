import { expect, test } from "vitest";
import { policyFor, withoutInline } from "../../scripts/content-security-policy.mjs";

const connecting = (policy: string) => policy.split("; ").find((part) => part.startsWith("connect-src"));

test("given pages of the server itself, then they may speak to no other one and run no inline script", () => {
	const policy = policyFor("");
	expect(connecting(policy)).toBe("connect-src 'self'");
	expect(policy).toContain("default-src 'none'; script-src 'self';");
	expect(policy).not.toContain("http");
});

test("given an API elsewhere, then they may speak to that one, too, also by WebSocket", () => {
	const policy = policyFor("https://api.example:8443/");
	expect(connecting(policy)).toBe("connect-src 'self' https://api.example:8443 wss://api.example:8443");
});

test("given a page with inline scripts, then each is in a file at its place, and nothing else changed", () => {
	const kept: string[] = [];
	const page = '<p>a</p><script id="x">one()</script><script src="/a.js"></script><script>\ntwo()\n</script><p>b</p>';
	const moved = withoutInline(page, (body) => `/${kept.push(body)}.js`);
	expect(kept).toEqual(["one()", "\ntwo()\n"]);
	expect(moved).toBe(
		'<p>a</p><script id="x" src="/1.js"></script><script src="/a.js"></script><script src="/2.js"></script><p>b</p>',
	);
});
