package httpeffect

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"

	"edda"
	"edda/effects"
)

// TestADotSegmentOfAPayloadReachesNoOtherPath, whoever decodes it on its way. It is a
// failure of which nobody was called.
func TestADotSegmentOfAPayloadReachesNoOtherPath(t *testing.T) {
	s := open(t)
	base := work(t, "effect: charge\nhttp: {url: '"+s.URL+"/orders/${payload.a}${payload.b}/labels'}\n")
	whole := work(t, "effect: charge\nhttp: {url: =payload.a}\n")
	called := 0
	for i, tt := range []struct {
		a, b any
		want string // the path that is called; refused where it is empty
	}{
		{"..", "", ""}, {".", "", ""}, {"../admin", "", ""}, {"a/../b", "", ""}, {"a/..", "", ""}, {`..\admin`, "", ""}, {`a\.\b`, "", ""}, {"/../", "", ""},
		{"%2e%2e", "", ""}, {"%2E.", "", ""}, {"..%2fadmin", "", ""}, {"..%5cadmin", "", ""}, {"%252e%252e", "", ""}, {"a%2f..", "", ""}, {"%25252525252e", "", ""},
		{"..;a=b", "", ""}, {"..%3bx", "", ""}, {".\t.", "", ""}, {"..\x00.png", "", ""}, {".. ", "", ""}, {"%0a..", "", ""},
		{".", ".", ""}, {"", "..", ""}, {"a/.", "./b", ""}, {"%2", "e.", ""},
		{"...", "", "/orders/.../labels"}, {"..a", "", "/orders/..a/labels"}, {"a.", "", "/orders/a./labels"}, {".", "a", "/orders/.a/labels"}, {"v1..2", "", "/orders/v1..2/labels"},
		{"a/b", "", "/orders/a%2Fb/labels"}, {"100%", "", "/orders/100%25/labels"}, {"a%2fb", "", "/orders/a%252fb/labels"}, {"?/../#/..", "", ""}, {7.5, "", "/orders/7.5/labels"}, {nil, "x", "/orders/x/labels"},
	} {
		payload, _ := json.Marshal(map[string]any{"a": tt.a, "b": tt.b})
		base.in["charge"] <- effects.Command{Tenant: "acme", ID: fmt.Sprint("c", i), Effect: "charge", Payload: payload}
		r := <-base.out
		if tt.want != "" {
			called++
			if r.Outcome != edda.Succeeded || s.last.RequestURI != tt.want {
				t.Errorf("%s: %s %s", payload, r.Outcome, r.Payload)
			}
		} else if r.Outcome != edda.Failed || r.Attempts != 0 || !strings.Contains(string(r.Payload), "a segment of its path is . or ..") || !strings.Contains(string(r.Payload), `"expression"`) {
			t.Errorf("%s: %s %s after %d calls", payload, r.Outcome, r.Payload, r.Attempts)
		}
		if s.total() != called {
			t.Fatalf("%s: %d calls, want %d", payload, s.total(), called)
		}
	}
	for address, want := range map[string]edda.Outcome{"/a/../b": edda.Failed, "/a/%2e%2e": edda.Failed, "/a?x=/../": edda.Succeeded, "/a/b.c": edda.Succeeded} {
		whole.in["charge"] <- effects.Command{Tenant: "acme", ID: address, Effect: "charge", Payload: json.RawMessage(`{"a":"` + s.URL + address + `"}`)}
		if r := <-whole.out; r.Outcome != want {
			t.Errorf("%s: %s %s", address, r.Outcome, r.Payload)
		}
	}
}

// TestTheSameHoldsForTheURLOfACheck, which is asked under the same secrets.
func TestTheSameHoldsForTheURLOfACheck(t *testing.T) {
	s := open(t)
	p := work(t, "effect: charge\nhttp: {url: '"+s.URL+"'}\ncheck: {http: {url: '"+s.URL+"/find/${payload.a}'}, ok: status == 200}\n")
	p.in["charge"] <- effects.Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{"a":".."}`)}
	if r := <-p.out; r.Outcome != edda.Failed || s.total() != 0 {
		t.Errorf("%s %s after %d calls", r.Outcome, r.Payload, s.total())
	}
}

// TestRawWritesAPathAsItIs, of which lint warns, and no host.
func TestRawWritesAPathAsItIs(t *testing.T) {
	s := open(t)
	for i, tt := range []struct{ address, payload, want string }{
		{s.URL + "/files/${raw(payload.a)}", `{"a":"x/../y.txt"}`, "/files/x/../y.txt"},
		{s.URL + "/files/${ raw( payload.a ) }/${payload.b}", `{"a":"x%2Fy","b":"a/b"}`, "/files/x%2Fy/a%2Fb"},
		{s.URL + "/files/${raw(payload.a)}/${payload.b}", `{"a":"..","b":".."}`, ""},
		{s.URL + "/files/${raw(payload.a)}", `{"a":"x?y=1"}`, "/files/x?y=1"},
		{"=raw(payload.a)", `{"a":"` + s.URL + `/a/../b"}`, "/a/../b"},
		{"http://${raw(payload.a)}/x", `{"a":"` + s.URL[len("http://"):] + `/y?"}`, ""},
	} {
		e, problems := compile(t, "effect: charge\nhttp: {url: '"+tt.address+"'}\n")
		if e == nil || len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Message, "raw writes payload.a as it is") {
			t.Errorf("%s: %v", tt.address, problems)
			continue
		}
		before := s.total()
		p := work(t, "effect: charge\nhttp: {url: '"+tt.address+"'}\n")
		p.in["charge"] <- effects.Command{Tenant: "acme", ID: fmt.Sprint("c", i), Effect: "charge", Payload: json.RawMessage(tt.payload)}
		r := <-p.out
		if seen := s.total() - before; tt.want == "" && (r.Outcome != edda.Failed || seen != 0) {
			t.Errorf("%s %s: %s %s after %d calls", tt.address, tt.payload, r.Outcome, r.Payload, seen)
		} else if tt.want != "" && (seen != 1 || s.last.RequestURI != tt.want) {
			t.Errorf("%s %s: %s %s, %s was called", tt.address, tt.payload, r.Outcome, r.Payload, s.last.RequestURI)
		}
	}
}

// FuzzAPayloadStaysInItsPlaceInThePath holds what is called against those who resolve paths.
func FuzzAPayloadStaysInItsPlaceInThePath(f *testing.F) {
	for _, seed := range []string{"..", "../admin", `..\admin`, "%2e%2e", "..%2fadmin", "%252e%252e%255cadmin", "..;x", ".\n.", "a/b", "7", "é", "%", "%zz..", "a/%2e/b", "..%00", "?", "#", "//", "..//..//"} {
		f.Add(seed, "")
		f.Add(seed[:len(seed)/2], seed[len(seed)/2:])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		const begin = "https://pay.example/orders/"
		text := begin + escape(begin, a)
		text += escape(text, b) + "/labels"
		if stays(text) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%q %q give %q, which is no url: %v", a, b, text, err)
		}
		for name, resolve := range map[string]func(string) string{"net/url": goResolves, "a browser": browserResolves, "a servlet container": servletResolves, "path.Clean": path.Clean} {
			for layer, read := 0, u.EscapedPath(); layer < 3; layer, read = layer+1, decoded(read) {
				got := resolve(read)
				if !strings.HasPrefix(got, "/orders") || !strings.HasSuffix(got, "/labels") || len(got) < len("/orders/labels") {
					t.Fatalf("%q %q give %q: %s, behind %d that decode it, calls %q", a, b, text, name, layer, got)
				}
			}
		}
	})
}

func goResolves(written string) string {
	base := &url.URL{Scheme: "https", Host: "pay.example", Path: "/"}
	return base.ResolveReference(&url.URL{Path: written}).Path
}

// browserResolves is the path state of the URL standard for https, by the text of which
// %2e is a dot, a backslash is a slash, and tabs and line ends are not there.
func browserResolves(written string) string {
	written = strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(written)
	var out []string
	segments := strings.Split(strings.TrimPrefix(written, "/"), "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch dots := strings.ReplaceAll(strings.ToLower(segment), "%2e", "."); {
		case dots == ".." && len(out) > 0:
			out = out[:len(out)-1]
			fallthrough
		case dots == "..", dots == ".":
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, segment)
		}
	}
	return "/" + strings.Join(out, "/")
}

// servletResolves takes parameters off each segment before it resolves.
func servletResolves(written string) string {
	segments := strings.Split(written, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return browserResolves(strings.Join(segments, "/"))
}
