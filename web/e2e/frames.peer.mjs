// React Flow as it comes, with nodes of its own kind: what there is to compare the canvas with. Bundled by frames.mjs.
import { ReactFlow } from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

const { nodes, edges, visibleOnly } = window.GRAPH;
document.body.style.margin = "0";
const root = document.body.appendChild(
	Object.assign(document.createElement("div"), { style: "width:100vw;height:100vh" }),
);
createRoot(root).render(
	createElement(ReactFlow, {
		defaultNodes: nodes.map(({ id, x, y }) => ({ id, position: { x, y }, data: { label: id } })),
		defaultEdges: edges.map(({ from, to }) => ({ id: `${from}-${to}`, source: from, target: to })),
		onlyRenderVisibleElements: visibleOnly,
		minZoom: 0.1,
		fitView: true,
	}),
);
