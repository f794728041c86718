package yamllayout

import (
	"strings"
	"testing"
)

// TestFormat shows the style: each text, and how it is laid out.
func TestFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"indentation of maps and lists", `
on:
    A:
        do:
        - x: 1
          y: 2
        -    - a
             - b
        -
            z: 3
    B:
     - c
`, `
on:
  A:
    do:
      - x: 1
        y: 2
      - - a
        - b
      -
        z: 3
  B:
    - c
`},
		{"blanks between tokens", `
a :   1
b:	{ c :x,d:  [ 1 ,2,], "e":3 , f: , 'g' : {} }
-:   "-  x"
h: [a  b, &y  *x , *x , !!str  s]
*x : {*x : z, &y : !!str : 1, '\' : 2}   # it's
i:  !t   &w   v
&v : 1
`, `
a: 1
b: {c :x, d: [1, 2,], "e": 3, f: , 'g': {}}
-: "-  x"
h: [a  b, &y *x, *x, !!str s]
*x : {*x : z, &y : !!str : 1, '\': 2}  # it's
i: !t &w v
&v : 1
`},
		{"blank lines and ends of documents", "\n\n---\n\n# one\n\n\n\na: 1   \n\n\n\nb: 2\n\n\n---\n\n\nc: 3\n \n...\n\n", "---\n# one\n\na: 1\n\nb: 2\n---\nc: 3\n...\n"},
		{"line ends and a byte order mark", "\ufeffa: 1\r\nb: 2\rc: |\r\n    x\r\n    y", "a: 1\nb: 2\nc: |\n  x\n  y"},
		{"a last line without an end", "a: 1", "a: 1\n"},
		{"a block scalar without an end", "a:\n - |-\n    b", "a:\n  - |-\n    b\n"},
		{"an empty block scalar", "a:\n   b: |\n   c: >\n\nd: 1\n", "a:\n  b: |\n  c: >\n\nd: 1\n"},
		{"a blank that a backslash keeps", "a: \"b\\   \n     c   \n  d\"\n", "a: \"b\\   \n  c\n  d\"\n"},
		{"a bracket behind a quote of two lines", "a: [\"c\nd\", {e: [\n1]}]\n", "a: [\"c\n  d\", {e: [\n    1]}]\n"},
		{"comments on lines of their own", `
  # first
a:
        # in a
    b:
    # of b's column
      # in b
    c: 1
    # after c
        # also after c

    # with the map

# before d
d:
- e
 # of d
    # of e
`, `
# first
a:
  # in a
  b:
  # of b's column
    # in b
  c: 1
  # after c
  # also after c

  # with the map

# before d
d:
  - e
  # of d
  # of e
`},
		{"comments behind lines", `
a: 1 # one
bb:     # two
  - {c: {d: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}}     # long
  - e   # four
f: 1
größe: [#x
 1] # six
`, `
a: 1   # one
bb:    # two
  - {c: {d: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}}  # long
  - e  # four
f: 1
größe: [  #x
  1]      # six
`},
		{"flow collections over lines", `
a: [1,
        2, {b: c,
    # alone

   d: "x
       y" ,
   },

        [e
   f


   g],
      ]
b:
  - {c: 1,
     d: [
       2
     ], e: {
     }}
`, `
a: [1,
  2, {b: c,
    # alone

    d: "x
    y",
  },

  [e
    f


    g],
]
b:
  - {c: 1,
      d: [
        2
      ], e: {
      }}
`},
		{"scalars over lines", `
a:   one  two
      three


      four
b:
      "five \
   six

    \  seven"
-c:
      - it''s
            # in the list
`, `
a: one  two
  three


  four
b:
  "five \
  six

  \  seven"
-c:
  - it''s
  # in the list
`},
		{"block scalars", `
a:  |    # text
      x
        y

      # no comment


b:
    -   >2-
          z
    - |+
      k


c: |

   l
   ` + `
  # comment
`, `
a: |  # text
  x
    y

  # no comment

b:
  - >2-
        z
  - |+
    k


c: |

  l

# comment
`},
		{"keys and values with marks", `
?   a
:       - b
        - c
? - d
  - e
:   f
`, `
? a
: - b
  - c
? - d
  - e
: f
`},
	} {
		got := Format(tt.text)
		if want := strings.TrimPrefix(tt.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, want)
		}
		if again := Format(got); again != got {
			t.Errorf("%s: formatted again\n%s\nafter\n%s", tt.name, again, got)
		}
	}
}

// FuzzFormatEndsOnAnyText: a text that is no YAML is laid out in some way.
func FuzzFormatEndsOnAnyText(f *testing.F) {
	for _, s := range []string{"a: [1,", "\"x\n", "{", "]", "a: &", ": :", "- - ? |9", "a: {\n# x", "---", "--- >", "*", "!", "|0\n0", "--- :"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) { Format(s) })
}
