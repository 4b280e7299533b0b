// The list of views, in the order of the navigation.
import { Decisions } from "/page/views/decisions.js";
import { Overview } from "/page/views/overview.js";

export const VIEWS = [
  { name: "overview", title: "Overview", Component: Overview },
  { name: "decisions", title: "Decisions", Component: Decisions },
];
