import { render } from 'preact'
import { App } from './App.tsx'
import { createGateway } from './gateway/gateway.ts'

const root = document.getElementById('app')
if (root) {
  root.replaceChildren()
  render(<App />, root)
  // The operator may have described networks in a file. Render again once they are known, to show their names and kind of money.
  import('./gateway/learnNetworks.ts')
    .then(({ learnNetworks }) => learnNetworks(createGateway()))
    .then(
      (learned) => learned && render(<App />, root),
      () => {},
    )
}
