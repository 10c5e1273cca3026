// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ContractWallet} from "./mocks/Wallets.sol";
import {TabTest} from "./support/TabTest.sol";

/// @notice Calldata that no encoder of ours writes. It may fail as it likes, but moves nothing that wasn't signed.
contract TabCalldataTest is TabTest {
    uint256 private constant COUNT = 3;
    uint256 private constant SELECTOR = 4;

    Bill[] private _signed;
    bytes private _data;

    function setUp() public override {
        super.setUp();
        Bill[] memory bills = new Bill[](COUNT);
        for (uint256 i; i < COUNT; ++i) {
            bills[i] = _bill(i);
            if (i == 1) bills[i].from = address(new ContractWallet(vm.addr(bills[i].key)));
            _fund(bills[i]);
            _signed.push(bills[i]);
        }
        Packed memory packed = _packTabs(bills);
        bytes memory signature = _signature(bills[1]);
        packed.signatures = new bytes[](1);
        packed.signatures[0] = bytes.concat(signature, signature, signature);
        (packed.tabs[1].r, packed.tabs[1].vs) = (0, 0);
        _data = _call(packed);
    }

    /// Each tab moved as it was signed or not at all, and everybody was paid what is his of those that moved.
    function _try(bytes memory data) private returns (uint256 moved) {
        vm.prank(KEEPER);
        (bool success,) = address(tabSettlement).call(data);
        for (uint256 i; i < COUNT; ++i) {
            bool paid = usdc.authorizationState(_signed[i].from, _signed[i].nonce);
            vm.assertEq(usdc.balanceOf(_signed[i].from), paid ? 0 : 50_000, "what the payer has left");
            if (paid) ++moved;
        }
        _checkGood(moved, "of what moved");
        vm.assertEq(success ? 1 : 0, moved == 0 ? 0 : 1, "a batch that moves nothing reverts, and only that one");
    }

    function test_default() public {
        vm.assertEq(_try(_data), COUNT, "tabs that moved");
    }

    /// Every word of the calldata in turn: offsets, lengths, upper bits that should be zero, heads, lines, signatures.
    function test_behavior_anyWordChanged() public {
        bytes memory original = _data;
        for (uint256 offset = SELECTOR; offset < original.length; offset += 32) {
            for (uint256 change; change < 6; ++change) {
                bytes memory data = bytes.concat(original);
                uint256 word;
                assembly ("memory-safe") {
                    word := mload(add(add(data, 0x20), offset))
                }
                if (change == 0) word = 0;
                else if (change == 1) word = type(uint256).max;
                else if (change == 2) word ^= 1;
                else if (change == 3) word ^= 1 << 255;
                else if (change == 4) word ^= 0x20;
                else word ^= 1 << 128;
                assembly ("memory-safe") {
                    mstore(add(add(data, 0x20), offset), word)
                }
                uint256 state = vm.snapshotState();
                _try(data);
                vm.revertToState(state);
            }
        }
    }

    function test_fuzz_anyByteChanged(uint256 position, uint8 mask) public {
        bytes memory data = _data;
        data[position % data.length] ^= bytes1(mask);
        _try(data);
    }

    function test_behavior_cutShort() public {
        bytes memory original = _data;
        for (uint256 length; length < original.length; length += 31) {
            bytes memory data = new bytes(length);
            for (uint256 i; i < length; ++i) data[i] = original[i];
            uint256 state = vm.snapshotState();
            _try(data);
            vm.revertToState(state);
        }
    }

    function test_behavior_dataBehindTheEnd() public {
        vm.assertEq(_try(bytes.concat(_data, bytes32(type(uint256).max))), COUNT, "tabs that moved");
    }
}
