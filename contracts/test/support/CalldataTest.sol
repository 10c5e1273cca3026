// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SettlementTest} from "./SettlementTest.sol";

/// @notice Calls with calldata that our encoders don't produce. They may fail in any way, but move nothing that wasn't
/// signed.
abstract contract CalldataTest is SettlementTest {
    uint256 internal constant COUNT = 3;
    uint256 private constant SELECTOR = 4;

    /// The unchanged call, which moves all authorizations.
    bytes internal _data;

    /// Calls with `data`, and checks that only what was signed moved.
    /// @return moved The number of authorizations that moved.
    function _try(bytes memory data) internal virtual returns (uint256 moved);

    /// Returns the number of authorizations in `_data`.
    function _signedCount() internal view virtual returns (uint256);

    function test_default() public {
        vm.assertEq(_try(_data), _signedCount(), "authorizations that moved");
    }

    /// Changes every word of the calldata in turn: offsets, lengths, upper bits that should be zero, heads, lines,
    /// signatures.
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

    function test_behavior_dataAfterTheEnd() public {
        vm.assertEq(_try(bytes.concat(_data, bytes32(type(uint256).max))), _signedCount(), "authorizations that moved");
    }
}
