// Requests to the gateway: JSON in and out, errors as readable messages, and streamed answers.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function refused(response) {
  const found = await response.json().catch(() => null);
  return new ApiError(response.status, found?.error?.message ?? `The gateway answered ${response.status}.`);
}

export async function call(method, path, body, signal) {
  let response;
  try {
    response = await fetch(`/page/api/${path}`, {
      method,
      signal,
      headers: { "x-page-request": "1", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway cannot be reached.");
  }
  if (!response.ok) {
    const error = await refused(response);
    if (response.status === 401 && path !== "session") window.dispatchEvent(new Event("signed-out"));
    throw error;
  }
  return response;
}

export const get = async (path, signal) => (await call("GET", path, undefined, signal)).json();
export const post = async (path, body) => (await call("POST", path, body)).json();
export const put = async (path, body) => (await call("PUT", path, body)).json();

export const query = (options) => {
  const given = Object.entries(options).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// One streamed chat completion: `onText` gets the text so far. Resolves to the response headers.
export async function stream(body, onText, signal) {
  const response = await call("POST", "chat", { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:") || line.includes("[DONE]")) continue;
      const event = JSON.parse(line.slice(5));
      if (event.error) throw new ApiError(502, event.error.message);
      text += event.choices?.[0]?.delta?.content ?? "";
    }
    onText(text, response.headers);
  }
  return response.headers;
}
