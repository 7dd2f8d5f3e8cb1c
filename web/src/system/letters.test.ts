import { expect, test } from "vitest";
import { anyCut, placeOf } from "./letters";

const of = (topic: string, count: number) => Array.from({ length: count }, () => ({ topic }));

test.each([
	["none", [], false],
	["fewer of each than were asked for, though more in all", [...of("a", 49), ...of("b", 49)], false],
	["as many of one as were asked for", [...of("a", 1), ...of("b", 50)], true],
])("given dead letters, %s, then older ones may be there: %s", (_, letters, cut) => {
	expect(anyCut(letters, 50)).toBe(cut);
});

test("given a dead letter, then what is asked before it goes names its record", () => {
	const place = placeOf({ topic: "riverrun.agent.commands", partition: 3, offset: 12 });
	expect(place).toBe("riverrun.agent.commands, partition 3, offset 12");
});
