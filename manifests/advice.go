package manifests

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// advice says what to write instead of a key that people bring from other languages, by the map in
// which it stands. It is for words that are too far from the right one for [Nearest]; read only.
var advice = map[string]map[string]string{
	"a saga": {
		"name": "the name stands after saga:", "handlers": "handlers stand under on:", "triggers": "handlers stand under on:",
		"true": "some tools write on: as true:", "steps": "actions stand in a handler: on: {Placed: {start: true, do: […]}}",
		"timeout": "a whole saga has a deadline:", "variables": "the initial state stands under state:", "vars": "the initial state stands under state:",
		"description": "write a comment with #",
		"effect":      "begin each document with ---",
	},
	"the action effect": {
		"when": "an action's condition is if:", "input": "the payload is with: {…}", "payload": "the payload is with: {…}", "args": "the payload is with: {…}", "data": "the payload is with: {…}",
		"timeout": "how long the saga waits is due: 10m; the time of one call is the effect's timeout:", "compensate": "what takes it back is undo: {effect: …}",
	},
	"the action timer": {
		"when": "an action's condition is if:", "in": "write after: 30m", "delay": "write after: 30m", "wait": "write after: 30m", "duration": "write after: 30m", "for": "write after: 30m",
		"timezone": "write zone: Europe/Brussels", "tz": "write zone: Europe/Brussels", "interval": "write every: 1h", "cron": "a saga starts by cron under schedule:",
	},
	"an effect": {
		"saga": "begin each document with ---",
		"name": "the name stands after effect:", "url": "it belongs to http: {method: POST, url: …}", "method": "it belongs to http: {method: POST, url: …}",
		"body": "it belongs to http: {method: POST, url: …, body: =payload}", "headers": "it belongs to http: {…, headers: {…}}",
		"retries": "write retry: {max: 5}", "attempts": "write retry: {max: 5}", "backoff": "write retry: {max: 5, backoff: 1s..1m}",
		"success": "write ok: status == 200", "error": "write fail: status in [409, 422]", "with": "a step gives the payload; here it is read as payload.name",
		"description": "write a comment with #",
	},
	"a handler": {
		"if": "a handler's condition is when:", "condition": "a handler's condition is when:", "guard": "a handler's condition is when:",
		"then": "write do: […]", "actions": "write do: […]", "else": "write cases: [{when: …, do: […]}, {do: […]}]", "switch": "write cases: [{when: …, do: […]}, {do: […]}]",
	},
	"a case": {
		"if": "a case's condition is when:", "elif": "cases are tried in order, each with its when:", "else_if": "cases are tried in order, each with its when:",
		"elseif": "cases are tried in order, each with its when:", "case": "a case's condition is when:", "condition": "a case's condition is when:",
		"else": "the last case is the else when it has no when:", "default": "the last case is the else when it has no when:", "then": "write do: […]",
	},
	"a test": {
		"given": "inputs stand under steps:, as {event: Placed, data: {…}}", "when": "inputs stand under steps:, as {event: Placed, data: {…}}",
		"then": "each step has its own expect:", "expect": "each step has its own expect:, and the last state stands under end:", "events": "inputs stand under steps:, as {event: Placed, data: {…}}",
	},
	"a step of a test": {
		"payload": "the payload of an input is data:", "body": "the payload of an input is data:", "input": "the payload of an input is data:", "result": "the payload of an input is data:",
		"outputs": "outputs stand under expect:", "then": "outputs stand under expect:", "assert": "outputs stand under expect:",
	},
	"retry": {
		"attempts": "the number of calls is max:", "count": "the number of calls is max:", "delay": "the time between calls is backoff: 1s..1m", "interval": "the time between calls is backoff: 1s..1m",
	},
}

// asMap says how a value is written as a map that stands there as something else.
var asMap = map[string]string{
	"limit": "write limit: {rate: 5/s} or {concurrent: 5}", "breaker": "write breaker: {failures: 5}",
	"retention": "write retention: {done: 7d, failed: 90d}", "http": "write http: {method: POST, url: …, body: =payload}",
}

// mapAdvice says how to write a map; empty without advice.
func mapAdvice(what string) string {
	if mend := asMap[what]; mend != "" {
		return ": " + mend
	}
	return ""
}

// adviceFor says what to write instead of an unknown key; empty without advice.
func (g *grammar) adviceFor(what, key string) string {
	if what == "a handler" && slices.Contains(g.words, key) {
		return "it is an action: write do: [{" + key + ": …}]"
	}
	if mend := advice[what][strings.ToLower(key)]; mend != "" {
		return mend
	}
	if action, is := strings.CutPrefix(what, "the action "); is && key == "when" && action != "" {
		return "an action's condition is if:"
	}
	return ""
}

// misnamed reports whether a map has a key for which there is advice.
func (g *grammar) misnamed(n *yaml.Node, what string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if g.adviceFor(what, n.Content[i].Value) != "" {
			return true
		}
	}
	return false
}
