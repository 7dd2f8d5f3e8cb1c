export function compressed(name: string, content: Buffer): Buffer | null;
