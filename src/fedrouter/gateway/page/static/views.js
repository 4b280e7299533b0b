// The list of views, in the order of the navigation.
import { Decisions } from "/page/views/decisions.js";
import { Frontier } from "/page/views/frontier.js";
import { Keys } from "/page/views/keys.js";
import { Learning } from "/page/views/learning.js";
import { Overview } from "/page/views/overview.js";
import { Playground } from "/page/views/playground.js";

export const VIEWS = [
  { name: "overview", title: "Overview", Component: Overview },
  { name: "frontier", title: "Frontier", Component: Frontier },
  { name: "playground", title: "Playground", Component: Playground },
  { name: "decisions", title: "Decisions", Component: Decisions },
  { name: "learning", title: "Learning", Component: Learning, admin: true },
  { name: "keys", title: "Keys and models", Component: Keys },
];
