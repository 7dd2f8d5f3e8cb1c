// A zip archive of a few small files, stored as they are.
import { crc32 } from "node:zlib";

/** `files`: name → text. */
export function zip(files) {
	const parts = [];
	const index = [];
	let at = 0;
	for (const [name, text] of Object.entries(files)) {
		const [path, data] = [Buffer.from(name), Buffer.from(text)];
		// Version, flags, method, time and date of 1980-01-01, checksum, both sizes, length of the name, nothing more.
		const about = Buffer.alloc(26);
		about.writeUInt16LE(20, 0);
		about.writeUInt16LE(0x21, 8);
		about.writeUInt32LE(crc32(data), 10);
		about.writeUInt32LE(data.length, 14);
		about.writeUInt32LE(data.length, 18);
		about.writeUInt16LE(path.length, 22);
		parts.push(Buffer.from("PK\x03\x04"), about, path, data);
		const entry = Buffer.alloc(14);
		entry.writeUInt32LE(at, 10);
		index.push(Buffer.concat([Buffer.from("PK\x01\x02"), Buffer.from([20, 0]), about, entry, path]));
		at += 30 + path.length + data.length;
	}
	const list = Buffer.concat(index);
	const end = Buffer.alloc(18);
	end.writeUInt16LE(index.length, 4);
	end.writeUInt16LE(index.length, 6);
	end.writeUInt32LE(list.length, 8);
	end.writeUInt32LE(at, 12);
	return Buffer.concat([...parts, list, Buffer.from("PK\x05\x06"), end]);
}
