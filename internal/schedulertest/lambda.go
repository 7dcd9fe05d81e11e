package schedulertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Lambda is a [Target] that invokes the function of the schedule asynchronously at the endpoint of a
// Lambda API, such as the URL of an internal/lambdatest server. It does not sign its requests.
func Lambda(endpoint string) Target {
	return func(ctx context.Context, i Invocation) error {
		u := endpoint + "/2015-03-31/functions/" + url.PathEscape(i.TargetARN) + "/invocations"
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(i.Input))
		if err != nil {
			return err
		}
		req.Header.Set("X-Amz-Invocation-Type", "Event")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("schedulertest: invoke %s: status %d, want %d", i.TargetARN, resp.StatusCode, http.StatusAccepted)
		}
		return nil
	}
}
