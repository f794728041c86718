package manifests

import "strings"

// maxTypo bounds the length of compared words, because the distance is quadratic.
const maxTypo = 40

// nearest returns the candidate that a word is most likely a misspelling of, or empty. It allows
// one change in three letters.
func nearest(word string, candidates []string) string {
	if len(word) > maxTypo {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Nearest returns the candidate that a word is most likely a misspelling of, or empty.
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }

// distance counts the insertions, deletions, replacements and swaps of neighbours between two
// words (optimal string alignment).
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
