"""Skills that describe files with a model over an OpenAI-compatible API. They need an API key and the
standard library; videos also need OpenCV.
"""

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import uuid

DESCRIBE = "Describe this image as detail as possible."
MAX_FRAMES = 30
# Seconds for one response.
TIMEOUT = 120


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, so that the key is only sent to the configured host."""

    def redirect_request(self, request, answer, code, message, headers, url):
        host = urllib.parse.urlsplit(url).netloc.rpartition("@")[2]
        raise RuntimeError(f"HTTP status {code}: a redirect to {host} is not followed")


_opener = urllib.request.build_opener(_NoRedirects)


def _post(path, body, kind):
    base = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    key = os.environ.get("OPENAI_API_KEY") or os.environ.get("SANDBOX_ENV_OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": kind}
    request = urllib.request.Request(f"{base.rstrip('/')}/{path}", body, headers)
    try:
        with _opener.open(request, timeout=TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # The body contains the reason.
        reason = error.read(2000).decode(errors="replace")
        raise RuntimeError(f"HTTP status {error.code}: {reason}") from None


def _describe(jpeg, task):
    image = {"url": f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"}
    content = [{"type": "text", "text": task}, {"type": "image_url", "image_url": image}]
    request = {
        "model": os.environ.get("OPENAI_MODEL") or "gpt-4o",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": int(os.environ.get("MAX_TOKEN") or 500),
    }
    answer = _post("chat/completions", json.dumps(request).encode(), "application/json")
    return answer["choices"][0]["message"]["content"]


def _form(model, file_path):
    """Returns a form with a file and its media type."""
    mark = uuid.uuid4().hex
    name = os.path.basename(file_path).replace('"', "")
    with open(file_path, "rb") as file:
        content = file.read()
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
        f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = head.encode() + content + f"\r\n--{mark}--\r\n".encode()
    return body, f"multipart/form-data; boundary={mark}"


def parse_audio(file_path, model="whisper-1"):
    """Prints the speech of an audio file, translated to English."""
    print(f"[Transcribing audio file from {file_path}]")
    try:
        print(_post("audio/translations", *_form(model, file_path))["text"])
    except Exception as error:
        print(f"Error transcribing audio file: {error}")


def parse_image(file_path, task=DESCRIBE):
    """Prints the description of an image."""
    print(f"[Reading image file from {file_path}]")
    try:
        with open(file_path, "rb") as file:
            print(_describe(file.read(), task))
    except Exception as error:
        print(f"Error with the request: {error}")


def parse_video(file_path, task=DESCRIBE, frame_interval=30):
    """Prints the description of every ``frame_interval``-th frame of a video, at most 30."""
    try:
        import cv2
    except ImportError:
        print("ERROR: the library opencv-python-headless is needed: pip install opencv-python-headless")
        return
    print(f"[Processing video file from {file_path} with frame interval {frame_interval}]")
    video = cv2.VideoCapture(file_path)
    try:
        for number in range(MAX_FRAMES * frame_interval):
            there, frame = video.read()
            if not there:
                break
            if number % frame_interval == 0:
                jpeg = cv2.imencode(".jpg", frame)[1].tobytes()
                print(f"{file_path}'s Frame {number + 1}: {_describe(jpeg, task)}")
    except Exception as error:
        print(f"Error with the request: {error}")
    finally:
        video.release()
