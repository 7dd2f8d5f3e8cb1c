export const LIMIT: number;
export function scriptsOf(html: string): string[];
export function bytesOf(html: string, read: (path: string) => Uint8Array): number;
