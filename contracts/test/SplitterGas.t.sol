// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {SplitterTest} from "./support/SplitterTest.sol";

/// @notice Gas of batches of one-signature payments, with every slot cold as at the start of a transaction. The numbers
/// are committed in snapshots/ and checked in CI. They are the gas of the call alone: a transaction adds 21,000 and its
/// calldata.
contract SplitterGasTest is SplitterTest {
    uint256 private constant COUNT = 100;

    function setUp() public override {
        super.setUp();
        for (uint256 i; i < COUNT; ++i) {
            _fund(_terms(i));
            usdc.mint(_provider(i), 1);
        }
    }

    function _provider(uint256 index) private pure returns (address) {
        return address(uint160(0xCAFE0000 + index));
    }

    function _splits(uint256 count) private pure returns (uint256[] memory splits) {
        splits = new uint256[](count);
        for (uint256 i; i < count; ++i) splits[i] = _split(_provider(i), 19, 1);
    }

    /// Pays and sweeps the splitters once, so that they are deployed and their balance slots have been used and are
    /// zero again.
    function _warmUp(uint256[] memory splits) private {
        for (uint256 i; i < splits.length; ++i) _filled(splits[i], 20);
        _sweep(splits);
    }

    function _measure(uint256[] memory splits, uint256 swept, string memory name) private {
        payees = new address[](0);
        for (uint256 i; i < splits.length; ++i) payees.push(_splitterOf(splits[i]));
        bytes memory data = _call(splits, swept);
        _coolAll();
        (bool success, bytes memory answer) = address(settlement).call(data);
        vm.snapshotGasLastCall("splitter", name);
        vm.assertTrue(success, "settle");
        vm.assertEq(abi.decode(answer, (bytes)), _repeat(0x10, COUNT), "outcomes");
        for (uint256 i; i < payees.length; ++i) {
            vm.assertTrue((usdc.balanceOf(payees[i]) < 20) == (i < swept), "swept, or not");
        }
    }

    function _call(uint256[] memory splits, uint256 swept) private view returns (bytes memory) {
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](COUNT);
        for (uint256 i; i < COUNT; ++i) {
            Terms memory terms = _terms(i);
            terms.payeeIndex = i % splits.length;
            authorizations[i] = _packOne(terms);
        }
        uint256[] memory due = new uint256[](swept);
        for (uint256 i; i < swept; ++i) due[i] = splits[i];
        IBatchSettlement.Sweep memory sweep = IBatchSettlement.Sweep(address(factory), 9_000_000, due);
        return abi.encodeCall(
            settlement.settleAuthorizations, (_batch(), payees, authorizations, new bytes[](0), sweep)
        );
    }

    function _coolAll() private {
        vm.cool(address(usdc));
        vm.cool(address(factory));
        vm.cool(factory.IMPLEMENTATION());
        for (uint256 i; i < COUNT; ++i) vm.cool(_buyer(i));
        for (uint256 i; i < payees.length; ++i) vm.cool(payees[i]);
    }

    function _measureSteady(uint256 splitters, string memory name) private {
        uint256[] memory splits = _splits(splitters);
        _warmUp(splits);
        _measure(splits, splitters, name);
    }

    function test_gas_oneSplitter() public {
        _measureSteady(1, "100 payments, 1 splitter");
    }

    function test_gas_fiveSplitters() public {
        _measureSteady(5, "100 payments, 5 splitters");
    }

    function test_gas_twentySplitters() public {
        _measureSteady(20, "100 payments, 20 splitters");
    }

    function test_gas_hundredSplitters() public {
        _measureSteady(100, "100 payments, 100 splitters");
    }

    function test_gas_firstTime() public {
        _measure(_splits(5), 5, "100 payments, 5 splitters, first time");
    }

    function test_gas_unswept() public {
        uint256[] memory splits = _splits(5);
        _warmUp(splits);
        _measure(splits, 0, "100 payments, 5 splitters, not swept");
    }

    function test_gas_sweepAlone() public {
        _warmUp(_splits(1));
        _filled(_splits(1)[0], 20);
        payees[0] = _splitterOf(_splits(1)[0]);
        _coolAll();
        _sweep(_splits(1));
        vm.snapshotGasLastCall("splitter", "a sweep alone");
    }

    function test_gas_bytecodeSize() public {
        vm.snapshotValue("splitter", "bytes of code, factory", address(factory).code.length);
        vm.snapshotValue("splitter", "bytes of code, implementation", factory.IMPLEMENTATION().code.length);
    }
}
