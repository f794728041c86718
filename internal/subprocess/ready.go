package subprocess

import (
	"fmt"
	"net"
	"net/http"
)

// FreeAddrs finds n loopback addresses with free ports. Another process may take one
// before the caller listens on it.
func FreeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // at the end, so that the addresses differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// Ready returns nil if a GET of the URL answers 200.
func Ready(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", url, resp.Status)
	}
	return nil
}
