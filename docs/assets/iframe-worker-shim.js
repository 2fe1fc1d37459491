// Search on pages opened from the file system, where browsers refuse workers: the search script runs
// in a hidden frame. On a server this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = data => {
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
      }
      this.inner.importScripts = async (...urls) => {
        for (const next of urls) await this.load(next)
      }
      this.ready = this.load(url)
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script")
        script.src = new URL(url, document.baseURI)
        script.onload = resolve
        script.onerror = reject
        this.inner.document.body.appendChild(script)
      })
    }

    async postMessage(data) {
      await this.ready
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }))
    }

    terminate() {
      this.inner.frameElement.remove()
    }
  }
}
