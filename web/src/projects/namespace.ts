"use client";

import { useSearchParams } from "next/navigation";
import { useMemo } from "react";
import { type PathOf, pathsOf } from "./paths";

/** The namespace that somebody chose on the page: `?namespace=`. */
export function useNamespace(): string | null {
	return useSearchParams().get("namespace");
}

/** Where the project is asked about. */
export function usePathOf(id: string): PathOf {
	const namespace = useNamespace();
	return useMemo(() => pathsOf(id, namespace), [id, namespace]);
}
