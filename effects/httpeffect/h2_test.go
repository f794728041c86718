package httpeffect

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"edda/effects/dial"
)

// resets serves HTTP/2: it takes each request whole, and resets its stream with a code.
func resets(t *testing.T, code http2.ErrCode) (address, ca string, taken *atomic.Int64) {
	t.Helper()
	s := openTLS(t, nil) // for its certificate
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	taken = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go reset(conn, code, taken)
		}
	}()
	return "https://" + l.Addr().String(), s.ca(), taken
}

func reset(conn net.Conn, code http2.ErrCode, taken *atomic.Int64) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch got.(type) {
		case *http2.HeadersFrame, *http2.DataFrame:
			if got.Header().Flags.Has(http2.FlagDataEndStream) {
				taken.Add(1)
				_ = f.WriteRSTStream(got.Header().StreamID, code)
			}
		}
	}
}

// TestAResetCallIsNotSentAgain: the transport would, where the other side says
// that the protocol was violated, which may be after it has done its work.
func TestAResetCallIsNotSentAgain(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeProtocol, http2.ErrCodeInternal, http2.ErrCodeCancel} {
		for _, method := range []string{"POST", "DELETE"} {
			address, ca, taken := resets(t, code)
			config := map[string]any{"url": address, "method": method, "tls": map[string]any{"ca": ca}}
			if method == "POST" {
				config["body"] = 1
			}
			_, err := call(t, provider(t, dial.Options{AllowLoopback: true}), config)
			if class(err) != unknown || taken.Load() != 1 {
				t.Errorf("%s, %s: taken %d times, %s, %v", method, code, taken.Load(), class(err), err)
			}
		}
	}
}

// TestARefusedCallIsNotSent: it may go out again, but not for ever.
func TestARefusedCallIsNotSent(t *testing.T) {
	t.Parallel() // it waits
	address, ca, refused := resets(t, http2.ErrCodeRefusedStream)
	_, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": address, "body": 1, "tls": map[string]any{"ca": ca}})
	if class(err) != notSent || refused.Load() != 1+maxResends {
		t.Errorf("refused %d times, %s, %v", refused.Load(), class(err), err)
	}
}
