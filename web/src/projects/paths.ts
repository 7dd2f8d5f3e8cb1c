/** Addresses of what concerns a project. Pure. */

/** A path below the project's, with its query. */
export type PathOf = (below?: string, query?: Record<string, string>) => string;

/** What a query says of the namespace: nothing where none was chosen, which is then the one of the token. */
export function inNamespace(namespace: string | null): Record<string, string> {
	return namespace === null ? {} : { namespace };
}

export function pathsOf(id: string, namespace: string | null): PathOf {
	return (below = "", query = {}) => {
		const asked = new URLSearchParams({ ...inNamespace(namespace), ...query }).toString();
		return `/projects/${encodeURIComponent(id)}${below}${asked && `?${asked}`}`;
	};
}

/** The page of a project, or without an id of all projects of the namespace. */
export function pageOf(id: string | null, namespace: string | null): string {
	const asked = new URLSearchParams({ ...(id === null ? {} : { id }), ...inNamespace(namespace) }).toString();
	return `/ui/projects/${asked && `?${asked}`}`;
}
