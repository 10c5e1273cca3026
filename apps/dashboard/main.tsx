import { render } from 'preact'
import { App } from './App.tsx'
import { createGateway } from './gateway/gateway.ts'

const root = document.getElementById('app')
if (root) {
  root.replaceChildren()
  render(<App />, root)
  // Render again if the operator described networks in a file: they were shown without their kind of money.
  import('./gateway/learnNetworks.ts')
    .then(({ learnNetworks }) => learnNetworks(createGateway()))
    .then(
      (learned) => learned && render(<App />, root),
      () => {},
    )
}
