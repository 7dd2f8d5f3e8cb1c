import type { NextConfig } from "next";

const config: NextConfig = {
	// The binary carries the exported files and serves them.
	output: "export",
	trailingSlash: true,
	reactStrictMode: true,
	poweredByHeader: false,
	images: { unoptimized: true },
};

export default config;
