// The recommended rules for the TypeScript of a copy, from the folder that this file lies in. Of the project only sources are read.
import js from "@eslint/js";
import typescript from "typescript-eslint";

const files = ["**/*.ts", "**/*.tsx", "**/*.mts", "**/*.cts"];

export default [js.configs.recommended, ...typescript.configs.recommended].map((one) => ({ ...one, files }));
