export function policyFor(apiBase: string): string;
export function withoutInline(html: string, keep: (body: string) => string): string;
